package main

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// store keeps on disk the manifests that the registry under it would hold in memory only.
type store struct {
	next http.Handler
	dir  string // one file a manifest: media type, newline, the manifest itself
}

func openStore(dir string) (http.Handler, error) {
	if dir == "" {
		return nil, errors.New("--dir is needed")
	}
	blobs := filepath.Join(dir, "blobs")
	s := &store{dir: filepath.Join(dir, "manifests")}
	for _, d := range []string{blobs, s.dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	s.next = registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)),
		registry.WithReferrersSupport(true),
		registry.Logger(log.New(os.Stderr, "", 0)),
	)
	return s, s.load()
}

type manifest struct {
	path, mediaType string
	body            []byte
}

// load puts the manifests back, indexes last, since the registry wants to know what they name.
func (s *store) load() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var all []manifest
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if err != nil {
			return err
		}
		path, err := url.PathUnescape(e.Name())
		if err != nil {
			continue
		}
		mediaType, body, _ := bytes.Cut(b, []byte("\n"))
		all = append(all, manifest{path, string(mediaType), body})
	}
	slices.SortStableFunc(all, func(a, b manifest) int { return rank(a) - rank(b) })
	for _, m := range all {
		r := httptest.NewRequest(http.MethodPut, m.path, bytes.NewReader(m.body))
		r.Header.Set("Content-Type", m.mediaType)
		s.next.ServeHTTP(httptest.NewRecorder(), r)
	}
	return nil
}

func rank(m manifest) int {
	if types.MediaType(m.mediaType).IsIndex() {
		return 1
	}
	return 0
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Path, "/manifests/") || r.Method == http.MethodGet || r.Method == http.MethodHead {
		s.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	s.next.ServeHTTP(rec, r)
	if err := s.keep(r, rec.Result(), body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// keep follows on disk what the registry has just accepted: under its digest, and under the tag.
func (s *store) keep(r *http.Request, answer *http.Response, body []byte) error {
	path := func(p string) string { return filepath.Join(s.dir, url.PathEscape(p)) }
	switch {
	case r.Method == http.MethodPut && answer.StatusCode == http.StatusCreated:
		b := append([]byte(r.Header.Get("Content-Type")+"\n"), body...)
		repo, _, _ := strings.Cut(r.URL.Path, "/manifests/")
		for _, p := range []string{repo + "/manifests/" + answer.Header.Get("Docker-Content-Digest"), r.URL.Path} {
			if err := os.WriteFile(path(p), b, 0o644); err != nil {
				return err
			}
		}
	case r.Method == http.MethodDelete && answer.StatusCode == http.StatusAccepted:
		return os.Remove(path(r.URL.Path))
	}
	return nil
}
