package quadlet

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

var (
	pathComponent = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
	hostName      = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
	tagName       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	hexDigits     = regexp.MustCompile(`^[0-9a-fA-F]*$`)
	imageID       = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// maxRepository is the longest repository that registries accept, in bytes.
const maxRepository = 255

// Repository splits a full image reference, "host/path[:tag][@sha256:hex]", by OCI's grammar. repo keeps the spelling
// of the reference; tag and digest are "" when the reference has none. A reference without a registry host, with
// credentials or with a digest other than sha256 in lower case is an error; one with credentials is not repeated in it.
func Repository(ref string) (repo, tag, digest string, err error) {
	rest, digest, hasDigest := strings.Cut(ref, "@")
	if strings.Contains(digest, "/") {
		return "", "", "", errors.New("image reference holds a user name or password before the @; registry credentials belong into auth.json (podman login)")
	}
	if repo, tag, err = splitTag(rest); err == nil && hasDigest {
		err = checkDigest(digest)
	}
	if err == nil {
		err = checkRepository(repo)
	}
	if err != nil {
		return "", "", "", fmt.Errorf("image reference %q: %w", ref, err)
	}
	return repo, tag, digest, nil
}

// splitTag looks for the tag behind the last slash only: a colon before it belongs to a port or an IPv6 address.
func splitTag(ref string) (repo, tag string, err error) {
	if strings.Contains(ref, "://") {
		return "", "", errors.New("starts with a transport; write it without the part up to ://")
	}
	slash := strings.LastIndexByte(ref, '/')
	name, tag, hasTag := strings.Cut(ref[slash+1:], ":")
	if slash < 0 {
		return "", "", errors.New("names no registry; write it in full, e.g. docker.io/library/nginx")
	}
	if hasTag && !tagName.MatchString(tag) {
		return "", "", fmt.Errorf("%q is not a tag", tag)
	}
	return ref[:slash+1] + name, tag, nil
}

func checkDigest(digest string) error {
	algorithm, hex, ok := strings.Cut(digest, ":")
	switch {
	case !ok || strings.Contains(hex, "@"):
		return errors.New("what follows the @ is not one digest; want sha256: and 64 hex digits")
	case algorithm != "sha256":
		return fmt.Errorf("has a %q digest; only sha256 digests are supported", algorithm)
	case !hexDigits.MatchString(hex) || len(hex) != 64:
		return fmt.Errorf("a sha256 digest has 64 hex digits, this one %d characters", len(hex))
	case hex != strings.ToLower(hex):
		return errors.New("the digest has upper-case letters; write its hex digits in lower case")
	}
	return nil
}

func checkRepository(repo string) error {
	if len(repo) > maxRepository {
		return fmt.Errorf("the repository is longer than %d bytes", maxRepository)
	}
	host, path, _ := strings.Cut(repo, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return fmt.Errorf("names no registry: %q has no dot, no port and is not localhost; write it in full, e.g. docker.io/library/nginx", host)
	}
	if err := checkHost(host); err != nil {
		return err
	}
	for part := range strings.SplitSeq(path, "/") {
		if pathComponent.MatchString(part) {
			continue
		}
		if pathComponent.MatchString(strings.ToLower(part)) {
			return fmt.Errorf("%q has upper-case letters, which a repository cannot have", part)
		}
		return fmt.Errorf("%q is not a part of a repository (lower-case letters, digits, and single . _ - between them)", part)
	}
	return nil
}

// checkHost accepts a name, an IPv4 address or an IPv6 address in brackets, each with or without a port.
func checkHost(host string) error {
	name, port, hasPort := strings.Cut(host, ":")
	valid := hostName.MatchString(name)
	if inside, ok := strings.CutPrefix(host, "["); ok {
		address, rest, closed := strings.Cut(inside, "]")
		ip, err := netip.ParseAddr(address)
		if !closed || err != nil || !ip.Is6() || ip.Zone() != "" {
			return fmt.Errorf("%q is not an IPv6 address in brackets", host)
		}
		name, port, hasPort = strings.Cut(rest, ":")
		valid = name == "" // only a port may follow the bracket
	}
	if !valid {
		return fmt.Errorf("%q is not a registry host", host)
	}
	if hasPort && !validPort(port) {
		return fmt.Errorf("%q is not a port", port)
	}
	return nil
}

// validPort is strict: a sign or a leading zero would make two spellings of one address.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// SameRepository says whether two repositories are one place. It knows the two ways to write Docker Hub's.
func SameRepository(a, b string) bool {
	return canonical(a) == canonical(b)
}

func canonical(repo string) string {
	host, path, _ := strings.Cut(repo, "/")
	host = strings.ToLower(host)
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	return host + "/" + path
}
