package protocol

import (
	"errors"
	"testing"
	"time"
)

func TestNamesOfEnvironments(t *testing.T) {
	for id, want := range map[string]string{"env-prod-01": "prod", "env-staging2-99": "staging2", "env-prod-1": "", "env--01": "",
		"env-Prod-01": "", "env-prod-01\n": "", "prod-01": "", "env-prod-01/..": ""} {
		if have, err := ParseEnv(id); have != want || (err == nil) != (want != "") {
			t.Errorf("%q: have %q %v", id, have, err)
		}
	}
}

func TestStatusesHaveClasses(t *testing.T) {
	for status, want := range map[int]error{401: ErrUnauthenticated, 403: ErrDenied, 404: ErrNotFound, 429: ErrRateLimited, 200: ErrTemporary,
		302: ErrTemporary, 407: ErrTemporary, 500: ErrTemporary, 503: ErrTemporary, 400: ErrRejected, 409: ErrRejected, 422: ErrRejected} {
		if have := classOf(status, ""); have != want {
			t.Errorf("%d: want %v, have %v", status, want, have)
		}
	}
	if have := classOf(403, CodeEnvironment); have != ErrEnvironment {
		t.Errorf("have %v", have)
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "99999999999": 24 * time.Hour,
		"Tue, 01 Jan 2030 00:01:00 GMT": time.Minute, "Mon, 31 Dec 2029 00:00:00 GMT": 0, "Fri, 01 Jan 2040 00:00:00 GMT": 24 * time.Hour} {
		if have := ReadRetryAfter(value, now); have != want {
			t.Errorf("%q: want %s, have %s", value, want, have)
		}
	}
}

func TestAnErrorHasAClassAndACause(t *testing.T) {
	err := error(&Error{Class: ErrTemporary, Op: "check-in", Cause: errors.ErrUnsupported, RetryAfter: time.Minute})
	if !errors.Is(err, ErrTemporary) || !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrDenied) || RetryAfter(err) != time.Minute {
		t.Error(err)
	}
}
