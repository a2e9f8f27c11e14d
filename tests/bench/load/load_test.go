package load

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestItKeepsItsRateBesideASlowAnswerAndCountsWhatWasLost(t *testing.T) {
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 2:
			time.Sleep(300 * time.Millisecond)
		case 3:
			panic(http.ErrAbortHandler)
		case 4:
			w.WriteHeader(503)
		}
		fmt.Fprintln(w, "version v1")
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	s := Summarise(Run(ctx, srv.URL, 50))
	if s.Sent < 6 || s.Lost != 1 || s.Wrong != 1 || s.Slowest < 300*time.Millisecond {
		t.Errorf("have %+v", s)
	}
}

func TestItAsksUntilTheContextEndsAlsoWhereNobodyListens(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	all := Run(ctx, "http://127.0.0.1:1/", 100)
	if s := Summarise(all); s.Sent < 3 || s.Lost != s.Sent || s.Slowest != 0 {
		t.Errorf("have %+v", s)
	}
}

func TestServedIsTheFirstGoodAnswerOfThatVersion(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	all := []Answer{
		{At: at(40), Took: time.Millisecond, Status: 200, Version: "v1"},
		{At: at(30), Took: 5 * time.Millisecond, Status: 200, Version: "v1"},
		{At: at(20), Took: time.Millisecond, Status: 503, Version: "v1"},
		{At: at(15), Took: time.Millisecond, Status: 200, Version: "v2"},
		{At: at(5), Took: time.Millisecond, Status: 200, Version: "v1"},
		{At: at(50)},
	}
	if have, ok := Served(all, "v1", at(10)); !ok || have != at(35) {
		t.Errorf("want %v, have %v %v", at(35), have, ok)
	}
	if _, ok := Served(all, "v3", at(10)); ok {
		t.Error("v3 never served")
	}
	if have := Last(all); have.Status != 0 {
		t.Errorf("the last answer: %+v", have)
	}
}
