package unitgen_test

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"toad/unitgen"
)

// names are all names that an operation's units can have.
func names(op string, n int, nanos int64) []string {
	list := []string{unitgen.CheckName(op, n), unitgen.CheckActName(op, n), unitgen.ActName(op, nanos)}
	for _, k := range []unitgen.Kind{unitgen.Prepare, unitgen.Probation, unitgen.Restore} {
		timer := unitgen.TimerName(k, op, n)
		list = append(list, timer, strings.TrimSuffix(timer, "timer")+"service")
	}
	return list
}

func TestNamesAreTheDocumentedOnes(t *testing.T) {
	want := []string{
		"toad-check-web-g7.service", "toad-act-web-g7-c1.service", "toad-act-web-g7-1795982400000000001.service",
		"toad-prepare-web-g7.timer", "toad-prepare-web-g7.service",
		"toad-probation-web-g7.timer", "toad-probation-web-g7.service",
		"toad-restore-web-g7.timer", "toad-restore-web-g7.service",
	}
	if have := names("web-g7", 1, 1795982400000000001); !slices.Equal(want, have) {
		t.Errorf("want %q\nhave %q", want, have)
	}
	if want, have := "toad-probation-web-g7-2.timer", unitgen.TimerName(unitgen.Probation, "web-g7", 2); want != have {
		t.Errorf("want %q have %q", want, have)
	}
	if want, have := "TOAD_ADMITTED_a_b_g7", unitgen.AdmissionVar("a-b-g7"); want != have {
		t.Errorf("want %q have %q", want, have)
	}
}

func TestForeignNamesBelongToNoOperation(t *testing.T) {
	for _, name := range []string{
		"", "web.service", "toad.service", "toad-reconcile.service", "toad-alert@web.service", "toad-tick.timer",
		"toad-check-web.service", "toad-check-web-g7.timer", "toad-act-web-g7.service", "toad-act-web-g7-c1.timer",
		"toad-check-web-g7-1.service", "toad-check-web-g7-c2.service", "toad-check-web-g7-02.service",
		"toad-check-web-g7-99999999999999999999.service", "toad-probation-Web-g7.timer", "toad-probation--g7.timer",
		"toad-probation-web-g7.timer\n", "toad-dry-web-g7.timer",
	} {
		if op, ok := unitgen.OperationOf(name); ok {
			t.Errorf("%q belongs to %q", name, op)
		}
	}
}

var serviceName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,59}$`)
var endsLikeOperation = regexp.MustCompile(`-g[0-9]+$`)

func FuzzEveryNameLeadsBackToItsOperation(f *testing.F) {
	f.Add("web", uint64(7), 1, int64(1))
	f.Add("web-g7-2", uint64(1), 2, int64(1795982400000000001))
	f.Add("g7", uint64(0), 0, int64(0))
	f.Add("a-g1-c", uint64(18446744073709551615), 1<<62, int64(9223372036854775807))
	f.Add(strings.Repeat("a-", 30), uint64(18446744073709551615), 9, int64(9))
	f.Fuzz(func(t *testing.T, service string, generation uint64, n int, nanos int64) {
		if !serviceName.MatchString(service) || endsLikeOperation.MatchString(service) || nanos < 0 {
			return
		}
		op := service + "-g" + strconv.FormatUint(generation, 10)
		for _, name := range names(op, n, nanos) {
			if have, ok := unitgen.OperationOf(name); have != op || !ok {
				t.Errorf("%q: want %q have %q", name, op, have)
			}
			if len(name) > 240 {
				t.Errorf("%d letters: %q", len(name), name)
			}
			matches := func(glob string) bool { ok, _ := path.Match(glob, name); return ok }
			if !slices.ContainsFunc(unitgen.Patterns(op), matches) {
				t.Errorf("no pattern of %q finds %q", op, name)
			}
		}
	})
}

func FuzzNoOtherNameIsTaken(f *testing.F) {
	for _, name := range names("web-g7", 2, 17) {
		f.Add(name)
	}
	f.Add("toad-check-web-g7-1.service")
	f.Add("toad-act-a-g1-g2-c3.service")
	f.Fuzz(func(t *testing.T, name string) {
		op, ok := unitgen.OperationOf(name)
		if !ok {
			return
		}
		if !strings.Contains(name, "-"+op) || !endsLikeOperation.MatchString(op) {
			t.Errorf("%q belongs to %q", name, op)
		}
	})
}
