package rollout_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toad/probation"
)

// plan asks what a deployment would do.
func (l *lab) plan(req probation.Request) (probation.Plan, []string, error) {
	var said []string
	p, err := l.toad().Plan(l.t.Context(), enrollment, req, func(_, event, message string) { said = append(said, event+" "+message) })
	return p, said, err
}

func (l *lab) disk() map[string]string {
	files := map[string]string{}
	for _, dir := range []string{l.records.Dir(), l.dirs.Config} {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) != ".lock" {
				data, _ := os.ReadFile(path)
				files[path] = string(data)
			}
			return nil
		})
	}
	return files
}

func TestAPlanDoesAllBeforeTheSwitchAndLeavesNoTrace(t *testing.T) {
	inLab(t, func(l *lab) {
		before, starts := l.disk(), l.starts
		p, said, err := l.plan(probation.Request{Digest: v2.Digest})
		if err != nil || p.Code != "" || p.Operation.ID != "web-g1" || p.Operation.Candidate.ImageID != v2.ID ||
			p.Operation.Previous == nil || p.Operation.Previous.ImageID != v1.ID {
			t.Fatalf("have %+v, %v", p, err)
		}
		if len(p.Units) != 1 || p.Units[0].Service != service || !p.Units[0].Running || p.Units[0].Reference != v2.RepoDigests[0] {
			t.Errorf("have %+v", p.Units)
		}
		if !l.kept[v1.ID] || !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "pull ") }) {
			t.Errorf("the image is to be here, and the way back proved; it said %q", said)
		}
		if after := l.disk(); !maps.Equal(before, after) || len(l.own) > 0 || l.starts != starts || len(l.admitted) > 0 {
			t.Errorf("it left %v, %v", slices.Sorted(maps.Keys(after)), l.own)
		}
		l.until(l.accept(v2)) // and nothing is in the way of doing it
		l.ended(probation.Promoted, "", v2)
		if p, _, err := l.plan(probation.Request{Digest: v2.Digest}); err != nil || !p.Already || p.Operation.ID != "web-g1" {
			t.Errorf("of the release in force: have %+v, %v", p, err)
		}
	})
}

func TestAPlanSaysWhyADeploymentWouldFail(t *testing.T) {
	inLab(t, func(l *lab) {
		zero := 7
		var r *probation.Rejection
		if _, _, err := l.plan(probation.Request{Digest: v2.Digest, ExpectedGeneration: &zero}); !errors.As(err, &r) || r.Code != probation.CodeGenerationMismatch {
			t.Errorf("have %v", err)
		}
		delete(l.registry, v3.RepoDigests[0])
		if p, _, err := l.plan(probation.Request{Digest: v3.Digest}); err != nil || p.Code != probation.CodePullFailed {
			t.Errorf("have %+v, %v", p, err)
		}
		l.noRetain = errors.New("no space")
		if p, _, err := l.plan(probation.Request{Digest: v2.Digest}); err != nil || p.Code != probation.CodeNoWayBack {
			t.Errorf("have %+v, %v", p, err)
		}
		l.noRetain = nil
		wins := filepath.Join(l.dirs.Config, "container.d", "zzz.conf")
		if err := errors.Join(os.Mkdir(filepath.Dir(wins), 0o755), os.WriteFile(wins, []byte("[Container]\nImage="+repository+":v1\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if p, _, err := l.plan(probation.Request{Digest: v2.Digest}); err != nil || p.Code != probation.CodeBindingBroken || !strings.Contains(p.Reason, wins+":2") {
			t.Errorf("have %+v, %v", p, err)
		}
	})
}
