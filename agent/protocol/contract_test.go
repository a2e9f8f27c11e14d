package protocol_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"toad/agent/protocol"
	"toad/tests/contract"
)

var promise = sync.OnceValue(func() *contract.Contract {
	document, err := os.ReadFile("openapi.yaml")
	if err != nil {
		panic(err)
	}
	c, err := contract.Read(document)
	if err != nil {
		panic(err)
	}
	return c
})

// promised holds each request of the client, and each answer of the control plane that says what it is, against the
// document. What is made to fail otherwise is nobody's answer.
type promised struct {
	t    *testing.T
	next http.RoundTripper
}

func (p promised) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.Path, "/v1/agent/") {
		return p.next.RoundTrip(r)
	}
	if err := promise().CheckRequest(r); err != nil {
		p.t.Errorf("the request is not as openapi.yaml has it: %v", err)
	}
	res, err := p.next.RoundTrip(r)
	if err != nil || !strings.Contains("application/problem+json application/json application/x-tar", res.Header.Get("Content-Type")) ||
		res.ContentLength < 0 || p.t.Name() != strings.Split(p.t.Name(), "/")[0] || odd[p.t.Name()] {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err := promise().Check(r, res.StatusCode, res.Header, body); err != nil {
		p.t.Errorf("the answer is not as openapi.yaml has it: %v", err)
	}
	return res, nil
}

// odd are the tests whose control plane is not of this protocol.
var odd = map[string]bool{"TestALeaseOfAnotherShapeIsLoud": true, "TestAnUnknownActionIsNoAction": true}

func TestTheDocumentHasTheFieldsOfTheWire(t *testing.T) {
	for name, v := range map[string]any{"CheckIn": protocol.CheckIn{}, "Answer": protocol.Answer{}, "LeaseRequest": protocol.LeaseRequest{},
		"Lease": protocol.Lease{}, "Report": protocol.Report{}, "Service": protocol.Service{}} {
		schema := promise().Document.Components.Schemas[name].Value
		want, required := slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(slices.Values(schema.Required))
		var have, always []string
		for f := range reflect.TypeOf(v).Fields() {
			tag, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			have = append(have, tag)
			if rest == "" {
				always = append(always, tag)
			}
		}
		slices.Sort(have)
		slices.Sort(always)
		if !slices.Equal(want, have) || !slices.Equal(required, always) {
			t.Errorf("%s: documented %v, required %v; there are %v, always %v", name, want, required, have, always)
		}
	}
}

func TestTheDocumentHasTheWordsOfTheProtocol(t *testing.T) {
	s := promise().Document.Components.Schemas
	for name, c := range map[string]struct{ want, have []any }{
		"action": {[]any{"apply", "none", "down"}, s["Answer"].Value.Properties["action"].Value.Enum},
		"result": {[]any{"applied", "failed", "down"}, s["Result"].Value.Enum},
		"kind":   {[]any{protocol.KindJWT}, s["Lease"].Value.Properties["kind"].Value.Enum},
		"reason": {[]any{protocol.ReasonApply, protocol.ReasonUnauthenticated}, s["LeaseRequest"].Value.Properties["reason"].Value.Enum},
	} {
		if !slices.Equal(c.want, c.have) {
			t.Errorf("%s: want %v, documented %v", name, c.want, c.have)
		}
	}
	codes := s["Code"].Value.Enum
	for path, item := range promise().Document.Paths.Map() {
		for _, op := range item.Operations() {
			for _, code := range contract.Codes(op.Extensions) {
				if !slices.Contains(codes, any(code)) {
					t.Errorf("%s may answer %s, which is no code", path, code)
				}
			}
		}
	}
}
