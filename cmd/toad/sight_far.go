package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"toad/httpd/api"
	"toad/probation"
	"toad/unitgen"
)

// farSight asks the host from inside a container.
type farSight struct{ http http.Client }

func newFarSight(socket string) *farSight {
	return &farSight{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, // it may end between two questions
	}}}
}

// askHost puts one question. It may be put twice: who is asked may just be ending, and a proof that is stored again is the
// same; nothing else is changed.
func askHost[A any](ctx context.Context, f *farSight, path string, q any, say func(level, event, message string)) (a A, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	for try := 1; ; try++ {
		var resp *http.Response
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://host/"+path, bytes.NewReader(body))
		if err != nil {
			return a, err
		}
		if resp, err = f.http.Do(req); err != nil {
			if try < 2 && ctx.Err() == nil {
				continue
			}
			return a, fmt.Errorf("the host cannot be looked at: %w; see systemctl --user status toad-look.socket toad-look.service", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return a, fmt.Errorf("the host cannot be looked at: toad-look.service answers %s; is it another build? toad setup", resp.Status)
		}
		return readTold[A](resp.Body, say)
	}
}

// readTold reads an answer to its end.
func readTold[A any](from io.Reader, say func(level, event, message string)) (a A, err error) {
	for lines := json.NewDecoder(from); ; {
		var t told
		switch err := lines.Decode(&t); {
		case errors.Is(err, io.EOF):
			return a, errors.New("the host was looked at, and the answer has no end: toad-look.service was stopped meanwhile; ask again")
		case err != nil:
			return a, fmt.Errorf("look at the host: %w", err)
		case len(t.Say) == 3:
			if say != nil {
				say(t.Say[0], t.Say[1], t.Say[2])
			}
			continue
		}
		if t.Answer != nil {
			if err := json.Unmarshal(t.Answer, &a); err != nil {
				return a, fmt.Errorf("look at the host: %w", err)
			}
		}
		return a, t.Error.err()
	}
}

func (f *farSight) Plan(ctx context.Context, e probation.Enrollment, req probation.Request, say func(level, event, message string)) (probation.Plan, error) {
	return askHost[probation.Plan](ctx, f, "plan", asPlan{e, req}, say)
}

func (f *farSight) Resolve(ctx context.Context, repository, tag string) (string, error) {
	return askHost[string](ctx, f, "tag", asTag{repository, tag}, nil)
}

func (f *farSight) Proof(ctx context.Context, service, digest string) ([]byte, error) {
	return askHost[[]byte](ctx, f, "proof", asProof{Service: service, Digest: digest}, nil)
}

func (f *farSight) PutProof(ctx context.Context, service, digest string, envelope []byte) error {
	_, err := askHost[bool](ctx, f, "put-proof", asProof{service, digest, envelope}, nil)
	return err
}

func (f *farSight) ServiceOf(ctx context.Context, unit string) (string, error) {
	return askHost[string](ctx, f, "service", unit, nil)
}

func (f *farSight) Runs(ctx context.Context, s unitgen.State) string {
	id, _ := askHost[string](ctx, f, "runs", s, nil)
	return id
}

func (f *farSight) FileOf(ctx context.Context, process string) (string, error) {
	return askHost[string](ctx, f, "file", process, nil)
}

func (f *farSight) Probe(ctx context.Context, ready probation.Ready, unit string) probed {
	found, err := askHost[probed](ctx, f, "probe", asProbe{ready, unit}, nil)
	if err != nil {
		return probed{}
	}
	return found
}

// farHost is the host as the API asks about it. Alerts are on record.
type farHost struct {
	*farSight
	looks
}

// readyTogether is how many services are asked about at a time: a question has a largest size.
const readyTogether = 100

func (f farHost) Ready(ctx context.Context, all []probation.Enrollment, tell func(i int, ready bool, why string)) {
	from := 0
	for some := range slices.Chunk(all, readyTogether) {
		question := make([]probation.Enrollment, len(some)) // of what may be long, and tells nothing of how it stands
		for i, e := range some {
			question[i] = probation.Enrollment{Name: e.Name, Kind: e.Kind, Units: e.Units, Door: e.Door, Ready: e.Ready}
		}
		found, err := askHost[[]probed](ctx, f.farSight, "ready", question, nil)
		if ctx.Err() != nil {
			return
		}
		for i := range some {
			switch {
			case err != nil:
				tell(from+i, false, oneLine(err))
			case i < len(found) && found[i].Known:
				tell(from+i, found[i].OK, found[i].Why)
			}
		}
		from += len(some)
	}
}

func (f farHost) Config(ctx context.Context, e probation.Enrollment, r probation.Release) (api.ImageConfig, error) {
	return askHost[api.ImageConfig](ctx, f.farSight, "config", asConfig{e, r}, nil)
}
