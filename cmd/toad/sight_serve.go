package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd"
	"toad/httpd/api"
	"toad/probation"
	"toad/unitgen"
)

// The questions of a daemon in a container, one path each, and what is asked.
type (
	asPlan struct {
		Enrollment probation.Enrollment
		Request    probation.Request
	}
	asConfig struct {
		Enrollment probation.Enrollment
		Release    probation.Release
	}
	asTag   struct{ Repository, Tag string }
	asProof struct {
		Service, Digest string
		Envelope        []byte
	}
	asProbe struct {
		Ready probation.Ready
		Unit  string
	}
)

// told is a line of an answer: progress, or the end with what was asked for or why it cannot be had.
type told struct {
	Say    []string        `json:"say,omitempty"` // level, event, message
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  *toldError      `json:"error,omitempty"`
}

// toldError keeps what a caller tells errors apart by.
type toldError struct {
	Text      string
	Tag       *probation.Code      `json:",omitempty"` // a httpd.TagError
	Proof     *probation.Code      `json:",omitempty"` // a httpd.ProofError
	Rejection *probation.Rejection `json:",omitempty"`
	Unknown   bool                 `json:",omitempty"` // httpd.ErrUnknownService
}

func lookCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "look", ShortUsage: "toad look", FlagSet: flag.NewFlagSet("toad look", flag.ContinueOnError),
		ShortHelp: "tell a daemon in a container of the host; started by toad-look.socket",
		LongHelp: "Answers what a daemon that runs in a container cannot see: cgroups, processes, ports, registries and unit\n" +
			"files, and stores proofs for it. It changes nothing else, and ends when nothing was asked for a while.\n\nExample: toad look",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return onHost(ctx, g, func(h *host) error { return h.answerSight(ctx) })
		},
	}
}

// answerSight answers on the socket that systemd has passed in.
func (h *host) answerSight(ctx context.Context) error {
	sockets, err := activation.Listeners()
	if err != nil || len(sockets) != 1 {
		return configError{errors.New("toad look is started by toad-look.socket, which toad setup --shape container installs")}
	}
	return httpd.ServeWhileAsked(ctx, sockets[0], h.sightHandler(h.ownSight()), idleLimit)
}

func (h *host) sightHandler(s sight) http.Handler {
	mux := http.NewServeMux()
	answer(mux, "plan", func(ctx context.Context, q asPlan, say func(level, event, message string)) (probation.Plan, error) {
		return s.Plan(ctx, q.Enrollment, q.Request, say)
	})
	answer(mux, "ready", func(ctx context.Context, all []probation.Enrollment, _ func(string, string, string)) ([]probed, error) {
		found := make([]probed, len(all))
		s.Ready(ctx, all, func(i int, ready bool, why string) { found[i] = probed{true, ready, why} })
		return found, nil
	})
	answer(mux, "config", func(ctx context.Context, q asConfig, _ func(string, string, string)) (api.ImageConfig, error) {
		return s.Config(ctx, q.Enrollment, q.Release)
	})
	answer(mux, "tag", func(ctx context.Context, q asTag, _ func(string, string, string)) (string, error) {
		return s.Resolve(ctx, q.Repository, q.Tag)
	})
	answer(mux, "proof", func(ctx context.Context, q asProof, _ func(string, string, string)) ([]byte, error) {
		return s.Proof(ctx, q.Service, q.Digest)
	})
	answer(mux, "put-proof", func(ctx context.Context, q asProof, _ func(string, string, string)) (bool, error) {
		return true, s.PutProof(ctx, q.Service, q.Digest, q.Envelope)
	})
	answer(mux, "service", func(ctx context.Context, unit string, _ func(string, string, string)) (string, error) {
		return s.ServiceOf(ctx, unit)
	})
	answer(mux, "runs", func(ctx context.Context, unit unitgen.State, _ func(string, string, string)) (string, error) {
		return s.Runs(ctx, unit), nil
	})
	answer(mux, "file", func(ctx context.Context, process string, _ func(string, string, string)) (string, error) {
		return s.FileOf(ctx, process)
	})
	answer(mux, "probe", func(ctx context.Context, q asProbe, _ func(string, string, string)) (probed, error) {
		return s.Probe(ctx, q.Ready, q.Unit), nil
	})
	return mux
}

// answer serves one kind of question. Lines go out as they come: a plan may pull an image.
func answer[Q, A any](mux *http.ServeMux, path string, find func(context.Context, Q, func(level, event, message string)) (A, error)) {
	mux.HandleFunc("POST /"+path, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var mu sync.Mutex
		tell := func(t told) {
			mu.Lock()
			defer mu.Unlock()
			_ = json.NewEncoder(w).Encode(t)
			_ = http.NewResponseController(w).Flush()
		}
		a, err := find(r.Context(), q, func(level, event, message string) { tell(told{Say: []string{level, event, message}}) })
		raw, badAnswer := json.Marshal(a)
		if err == nil {
			err = badAnswer
		}
		tell(told{Answer: raw, Error: tellError(err)})
	})
}

func tellError(err error) *toldError {
	if err == nil {
		return nil
	}
	t := &toldError{Text: err.Error(), Unknown: errors.Is(err, httpd.ErrUnknownService)}
	var tag *httpd.TagError
	var proof *httpd.ProofError
	if errors.As(err, &tag) {
		t.Tag = &tag.Code
	}
	if errors.As(err, &proof) {
		t.Proof = &proof.Code
	}
	errors.As(err, &t.Rejection)
	return t
}

// err is the error as it was, as far as a caller tells it from others.
func (t *toldError) err() error {
	switch {
	case t == nil:
		return nil
	case t.Tag != nil:
		return &httpd.TagError{Code: *t.Tag, Err: errors.New(t.Text)}
	case t.Proof != nil:
		return &httpd.ProofError{Code: *t.Proof, Err: errors.New(t.Text)}
	case t.Rejection != nil:
		return t.Rejection
	case t.Unknown:
		return fmt.Errorf("%w: %s", httpd.ErrUnknownService, t.Text)
	}
	return errors.New(t.Text)
}
