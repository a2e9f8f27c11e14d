// Command registry is the container registry of the tests, and the maker of the images in it.
//
//	registry images --dir D --sample BIN --other BIN   fill D with every sample image; writes D/digests.json
//	registry serve --dir D [--addr A] [--auth U:P]     serve D; what is pushed is kept in D
//	registry proxy [--addr A] [--to HOST]              pass on to a registry, and break answers when told to
//	registry push --to HOST --tag T --behaviour B --version V --sample BIN
//	                                                   build one more image, push it, print its entry
//	registry index --to HOST --tag T --of TAG          push an index of one image that is there, print its entry
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "registry: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: registry images|serve|proxy|push|index [flags]")
	}
	fs := flag.NewFlagSet("registry "+args[0], flag.ContinueOnError)
	dir := fs.String("dir", "", "folder that holds the images")
	addr := fs.String("addr", "127.0.0.1:5000", "address to listen on")
	auth := fs.String("auth", "", "user:password to ask for")
	sample := fs.String("sample", "", "static sample binary")
	other := fs.String("other", "", "static binary of another program")
	to := fs.String("to", "127.0.0.1:5000", "registry to push or pass on to")
	tag := fs.String("tag", "", "tag of the image to push")
	behaviour := fs.String("behaviour", "good", "behaviour of the image to push")
	version := fs.String("version", "", "version of the image to push; the tag if empty")
	of := fs.String("of", "", "tag of the image in the index")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "images":
		return images(*dir, *sample, *other)
	case "serve":
		return serve(*dir, *addr, *auth)
	case "proxy":
		return listen(*addr, &proxy{to: *to})
	case "index":
		d, err := pushIndexOf(*to, *tag, *of)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(d)
	case "push":
		if *version == "" {
			*version = *tag
		}
		d, err := pushOne(*to, *sample, *tag, *behaviour, *version, *auth)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(d)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func serve(dir, addr, auth string) error {
	h, err := openStore(dir)
	if err != nil {
		return err
	}
	if auth != "" {
		h = requireAuth(h, auth)
	}
	return listen(addr, h)
}

// listen tells systemd, if it asked, that the port is open.
func listen(addr string, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if c, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET")); err == nil {
		c.Write([]byte("READY=1"))
		c.Close()
	}
	return http.Serve(l, h)
}

// images pushes to a registry of its own on the folder, so that the folder ends up as a push would leave it.
func images(dir, sample, other string) error {
	h, err := openStore(dir)
	if err != nil {
		return err
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	digests, err := pushAll(strings.TrimPrefix(srv.URL, "http://"), sample, other)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(digests, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "digests.json"), append(b, '\n'), 0o644)
}

func requireAuth(next http.Handler, auth string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user+":"+password != auth {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
