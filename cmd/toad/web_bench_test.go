package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/webui"
)

// BenchmarkOverview is the first page with 100 services that rest, each promoted once: from the request to the last byte, and
// of that what the views take.
func BenchmarkOverview(b *testing.B) {
	const services = 100
	dir := b.TempDir()
	records, err := record.Open(filepath.Join(dir, "state"))
	if err != nil {
		b.Fatal(err)
	}
	text := &strings.Builder{}
	for i := range services {
		name := fmt.Sprintf("page-%02d", i)
		fmt.Fprintf(text, "[service.%s]\nunits = [\"%s.container\"]\nimage = \"registry.example.org/team/web\"\n\n", name, name)
		at := time.Now().UTC()
		by := probation.NewDeadline(now(), time.Minute)
		r := probation.Release{Digest: "sha256:" + strings.Repeat("0c220ab041f4dead", 4), ImageID: strings.Repeat("ab", 32), Generation: 1, PromotedAt: at}
		op := probation.Operation{ID: probation.OperationID(name, 1), Service: name, Generation: 1, Phase: probation.Promoted, AcceptedAt: at, EndedAt: &at,
			Enrollment: probation.Enrollment{Name: name, Units: []string{name + ".container"}, Image: "registry.example.org/team/web"},
			Candidate:  r, PrepareBy: by, Deadline: &by, Before: []probation.UnitBefore{{Unit: name + ".container", Service: name + ".service"}}}
		if err := records.Put(probation.Service{Name: name, Generation: 1, Promoted: &r, Retained: []probation.Release{r}, Operation: &op}); err != nil {
			b.Fatal(err)
		}
	}
	path := filepath.Join(dir, "enrollment.toml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond) // until the files are old enough to be known again; there is no event to wait for
	source := &pageSource{records: record.NewReader(records), units: poisonedUnits{}, containers: poisonedContainers{},
		enrolled: &enrolled{path: path, log: slog.New(slog.DiscardHandler)},
		sight:    poisonedSight{},
		follow:   func(string) (<-chan struct{}, func()) { return make(chan struct{}), func() {} },
		now:      now, glances: newGlances()}
	site := webui.New(source, slog.New(slog.DiscardHandler))
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			w := httptest.NewRecorder()
			site.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != http.StatusOK || w.Body.Len() < 10_000 {
				b.Fatalf("have %d, %d bytes", w.Code, w.Body.Len())
			}
		}
	})
	b.Run("source", func(b *testing.B) {
		for b.Loop() {
			if _, err := source.Overview(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
