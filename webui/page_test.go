package webui

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestTheHeadComesBeforeTheRestAndHalfAPageIsCutOff(t *testing.T) {
	s := New(nil, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.page(w, r, http.StatusOK, "overview", pageOf("half", "", time.Now(), nil, Overview{})) // its parts are missing
	}))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("want an answer that breaks off, have %v", err)
	}
	if !strings.Contains(string(text), "<title>half") || !strings.HasSuffix(string(text), `<main id="main">`) {
		t.Errorf("want the head and no more, have %q", text)
	}
}
