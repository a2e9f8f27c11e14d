package record

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"toad/probation"
)

func reader(t *testing.T) *Reader {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return time.Now().Add(settled + time.Second) } // every file is settled
	return NewReader(s)
}

func (r *Reader) put(t *testing.T, generation int) {
	t.Helper()
	op := probation.Operation{ID: probation.OperationID("web", generation), Service: "web", Generation: generation, Phase: probation.Accepted}
	if err := r.Put(probation.Service{Name: "web", Generation: generation, Operation: &op}); err != nil {
		t.Fatal(err)
	}
}

func (r *Reader) must(t *testing.T, generation int) probation.Service {
	t.Helper()
	svc, err := r.Service("web")
	if err != nil || svc.Generation != generation {
		t.Fatalf("want generation %d, have %d, %v", generation, svc.Generation, err)
	}
	return svc
}

func TestARecordThatIsTheSameFileIsNotDecodedAgain(t *testing.T) {
	r := reader(t)
	r.put(t, 1)
	if first, again := r.must(t, 1), r.must(t, 1); first.Operation != again.Operation {
		t.Error("it was decoded again")
	}
	r.now = time.Now
	if first, again := r.must(t, 1), r.must(t, 1); first.Operation == again.Operation {
		t.Error("a file that may change within the clock's grain was not read")
	}
}

func TestWhatAReaderKeepsHoldsEachTextOnce(t *testing.T) {
	r := reader(t)
	digest := "sha256:" + strings.Repeat("1", 64)
	rel := probation.Release{Digest: digest, Digests: []string{digest}, PromotedAt: time.Now().UTC()}
	want := probation.Service{Name: "web", Generation: 1, Promoted: &rel, Retained: []probation.Release{rel},
		Totals: probation.Totals{Ended: map[probation.Phase]int{probation.Promoted: 1}}}
	if err := r.Put(want); err != nil {
		t.Fatal(err)
	}
	have := r.must(t, 1)
	if !reflect.DeepEqual(want, have) {
		t.Errorf("want %+v\nhave %+v", want, have)
	}
	first := unsafe.StringData(have.Promoted.Digest)
	for _, again := range []string{have.Promoted.Digests[0], have.Retained[0].Digest, have.Retained[0].Digests[0]} {
		if unsafe.StringData(again) != first {
			t.Error("the same digest takes room of its own")
		}
	}
}

func TestAReaderSeesEveryChangeAtOnce(t *testing.T) {
	for name, now := range map[string]func() time.Time{"settled": reader(t).now, "young": time.Now} {
		t.Run(name, func(t *testing.T) {
			r := reader(t)
			r.now = now
			if svc := r.must(t, 0); svc.Operation != nil {
				t.Errorf("have %v", svc)
			}
			for g := 1; g <= 9; g++ { // all of one size
				r.put(t, g)
				r.must(t, g)
				r.must(t, g)
			}
			path := r.servicePath("web")
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// As it was, with one byte of nonsense, and with its old time.
			text[0] = '?'
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := r.Service("web"); !errors.Is(err, ErrDamaged) {
					t.Errorf("want that it is damaged, have %v", err)
				}
			}
			r.put(t, 10)
			r.must(t, 10)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if svc, err := r.Service("web"); err == nil && svc.Generation != 0 {
				t.Errorf("it is gone, and yet: %v", svc)
			}
			if len(r.seen) != 0 {
				t.Errorf("what is gone is kept: %v", r.seen)
			}
		})
	}
}
