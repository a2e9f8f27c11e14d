package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"toad/agent/protocol"
)

// unknown stands for the version of a secret that is not known before it is read.
const unknown = "0"

var (
	volumeName = regexp.MustCompile(`(?m)^VolumeName=(systemd-[A-Za-z0-9_-]+)$`)
	errNoGrant = errors.New("this box has no token and no grant; put a new deploy grant in place with: toad agent bootstrap")
)

func values(m map[string]string) []string { return slices.Collect(maps.Values(m)) }

// login has a token that is accepted: the one that was kept, renewed; else of the grant that an operator put there; else of
// one new lease.
func (a *Agent) login(ctx context.Context) error {
	grant, err := a.Folder.Grant()
	if err != nil {
		return err
	}
	if grant != "" { // a newer grant supersedes whatever there is
		return a.first(ctx, grant)
	}
	token, err := a.Store.Bearer()
	if err != nil {
		return err
	}
	if token == "" {
		return errNoGrant
	}
	a.Redactor.Add("", token)
	a.Vault.SetToken(token)
	_, err = a.Vault.Renew(ctx)
	switch {
	case errors.Is(err, protocol.ErrUnauthenticated):
		return a.lease(ctx, protocol.ReasonUnauthenticated, "")
	case errors.Is(err, protocol.ErrTemporary), errors.Is(err, protocol.ErrRateLimited):
		a.Log.Warn("the token could not be renewed; it is used as it is", "err", err)
		return nil
	}
	return err
}

// first is the login with the grant of an operator, which is consumed: the token is kept before the grant goes.
func (a *Agent) first(ctx context.Context, grant string) error {
	a.Redactor.Add("", grant)
	if err := a.trade(ctx, a.Config.Role, grant); err != nil {
		return err
	}
	return a.Folder.Consume()
}

func (a *Agent) trade(ctx context.Context, role, grant string) error {
	old := a.Vault.Token()
	auth, err := a.Vault.Login(ctx, role, grant)
	if err != nil {
		return err
	}
	a.Redactor.Add("", auth.Token)
	if err := a.Store.PutBearer(auth.Token); err != nil || old == "" || old == auth.Token {
		return err
	}
	// One that stays behind ends by itself; it is only that nobody needs it any more.
	a.Vault.SetToken(old)
	if err := a.Vault.Revoke(ctx); err != nil {
		a.Log.Warn("the token before could not be ended", "err", err)
	}
	a.Vault.SetToken(auth.Token)
	return nil
}

// lease asks for one new grant, and logs in with it.
func (a *Agent) lease(ctx context.Context, reason, sha string) error {
	l, err := a.Control.Lease(ctx, reason, sha)
	if err != nil {
		return err
	}
	a.Redactor.Add("", l.JWT)
	return a.trade(ctx, l.Role, l.JWT)
}

// versions are those that a plan is filled in with before a secret is read: of a bundle that was filled in before those that
// are current still, of another one none.
func (a *Agent) versions(ctx context.Context, b *Bundle, had *Plan) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range b.Manifest.Secrets {
		all[name] = unknown
		if had.Bundle != b.SHA || had.Secrets[name] == "" {
			continue
		}
		n, err := a.Vault.Version(ctx, name)
		if err != nil {
			return nil, a.missing(name, err)
		}
		if all[name] = had.Secrets[name]; kvVersion(had.Secrets[name]) != n {
			all[name] = unknown
		}
	}
	return all, nil
}

// kvVersion is the number of a version "3", or of one "3.1" that another value has taken the name of.
func kvVersion(version string) int {
	for i, c := range version {
		if c == '.' {
			version = version[:i]
			break
		}
	}
	n, _ := strconv.Atoi(version)
	return n
}

func (a *Agent) missing(name string, err error) error {
	if errors.Is(err, protocol.ErrNotFound) {
		return refuse(CodeUnresolved, ManifestName, "requires the secret %s, which the environment does not have", name)
	}
	return err
}

// fillSecrets reads the secrets whose versions are not known, or not in Podman's store any more, puts them into Podman's store, and fills the plan in. The
// value is in no variable that outlives this, and in no file.
func (a *Agent) fillSecrets(ctx context.Context, b *Bundle, p *Plan) (*Plan, error) {
	versions := maps.Clone(p.Secrets)
	for _, name := range slices.Sorted(maps.Keys(p.Secrets)) {
		if versions[name] != unknown {
			if _, own, ok, err := a.Podman.FindSecret(ctx, SecretName(name, versions[name])); err != nil || ok && own {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		s, err := a.Vault.Read(ctx, name)
		if err != nil {
			return nil, a.missing(name, err)
		}
		a.Redactor.Add("", s.Value)
		if versions[name], err = a.putSecret(ctx, name, s.Value, s.Version); err != nil {
			return nil, err
		}
	}
	return b.render(p.Variables, func(name string) string { return versions[name] }, a.Config.Mounts)
}

// putSecret stores a value under a name of its version's. A name that holds another value, of a secret that was made anew,
// is left alone: a release may still run with it.
func (a *Agent) putSecret(ctx context.Context, name, value string, kv int) (version string, err error) {
	for n := range 100 {
		version = strconv.Itoa(kv)
		if n > 0 {
			version += "." + strconv.Itoa(n)
		}
		as := SecretName(name, version)
		had, own, ok, err := a.Podman.FindSecret(ctx, as)
		switch {
		case err != nil:
			return "", err
		case ok && !own:
			return "", refuse(CodeTaken, "", "Podman has a secret %s that is not the agent's; rename it in the bundle, or remove it with: podman secret rm", as)
		case ok && had == value:
			return version, nil
		case ok:
			a.Redactor.Add("", had)
			continue
		}
		if value == "" {
			return "", refuse(CodeUnresolved, ManifestName, "requires the secret %s, which is empty", name)
		}
		return version, a.Podman.PutSecret(ctx, as, value)
	}
	return "", fmt.Errorf("no name is left for the secret %s", name)
}

// storeNames are the names in Podman's store that plans need.
func storeNames(plans ...*Plan) (names []string) {
	for _, p := range plans {
		for name, version := range p.Secrets {
			names = append(names, SecretName(name, version))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
