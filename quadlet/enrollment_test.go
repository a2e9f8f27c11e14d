package quadlet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"toad/probation"
)

// Each file of testdata/enrollment says in comments what must be refused in it, by line, key and reason; all of it, and
// nothing else.
func TestEnrollmentsAreJudgedAsTheirFilesSay(t *testing.T) {
	files, err := filepath.Glob("testdata/enrollment/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, m := range regexp.MustCompile(`(?m)^## refused: (.*)$`).FindAllSubmatch(data, -1) {
				want = append(want, file+":"+string(m[1]))
			}
			if len(want) == 0 && !bytes.Contains(data, []byte("## accepted")) {
				t.Fatal("the file says nothing of itself")
			}
			_, err = Parse(file, data)
			checkProblems(t, want, err)
		})
	}
}

// checkProblems wants one problem for each text, starting with it, and no other.
func checkProblems(t *testing.T, want []string, err error) {
	t.Helper()
	var found Problems
	if err != nil && !errors.As(err, &found) {
		t.Fatalf("not Problems: %v", err)
	}
	var have []string
	for _, p := range found {
		have = append(have, p.Error())
		if p.Fix == "" {
			t.Errorf("says nothing of what to do: %v", p)
		}
		if strings.Contains(p.Error(), "S3NT1NEL") {
			t.Errorf("repeats a secret: %v", p)
		}
	}
	for _, w := range want {
		found := false
		for i, h := range have {
			if strings.HasPrefix(h, w) {
				have, found = append(have[:i], have[i+1:]...), true
				break
			}
		}
		if !found {
			t.Errorf("want %s", w)
		}
	}
	for _, h := range have {
		t.Errorf("have %s", h)
	}
}

func TestAFullEnrollment(t *testing.T) {
	path := "testdata/enrollment/full.toml"
	have, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	limits := probation.Limits{Deadline: 5 * time.Minute, Stable: 10 * time.Second, Pull: 10 * time.Minute, Keep: 2}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Path: path,
		Text: text,
		Services: []probation.Enrollment{
			{
				Name: "db-1", Units: []string{"db@main.container"}, Image: "[::1]:5000/db",
				Ready: probation.Ready{TCP: "[::1]:5432", Interval: 500 * time.Millisecond, Timeout: 500 * time.Millisecond},
				Limit: limits,
			},
			{
				Name: "job", Units: []string{"job.container"}, Image: "localhost/job",
				Ready: probation.Ready{Interval: 500 * time.Millisecond, Timeout: 2 * time.Second},
				Limit: limits,
			},
			{
				Name: "web", Units: []string{"web.container", "web-worker.container"}, Image: "registry.example.org/team/web",
				Ready: probation.Ready{HTTP: "http://127.0.0.1:8080/healthz", Status: 204, Interval: 250 * time.Millisecond, Timeout: time.Second},
				Limit: probation.Limits{Deadline: 2 * time.Minute, Stable: 15 * time.Second, Restarts: 3, Pull: time.Hour, Keep: 5},
				Hold:  "web.socket",
			},
		},
		Alerts: Alerts{WebhookFile: "testdata/enrollment/webhook", Command: []string{"/usr/local/bin/notify", "--fast"}},
	}
	if !reflect.DeepEqual(want, have) {
		t.Errorf("want %+v\nhave %+v", want, have)
	}
	if e, ok := have.Service("job"); !ok || e.Name != "job" {
		t.Errorf("job: have %+v, %v", e, ok)
	}
	if _, ok := have.Service("nobody"); ok {
		t.Error("found a service that is not there")
	}
}

func TestAFileOthersMayWriteIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "enrollment.toml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: have %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]string{0o644: "", 0o600: "", 0o664: "others may write it (mode 0664)", 0o646: "others may write it"} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%o: want %q, have %v", mode, want, err)
		}
	}
	if _, err := Load(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: have %v", err)
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "enrollment.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "belongs to user 4711") {
		t.Errorf("have %v", err)
	}
}

func TestTooLargeAFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "enrollment.toml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("#\n"), maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("have %v", err)
	}
}

func TestAHostileFileIsRefused(t *testing.T) {
	var manyKeys strings.Builder
	for i := range 5000 { // go-toml is quadratic in the keys of a table
		fmt.Fprintf(&manyKeys, "k%d=1\n", i)
	}
	for _, text := range []string{
		"a=" + strings.Repeat("[", maxFile-2),
		"a" + strings.Repeat(".a", maxFile/2-2) + "=1",
		strings.Repeat("a={", maxFile/3),
		manyKeys.String(),
	} {
		_, err := Parse("x", []byte(text)) // one that takes for ever meets the limit of the whole run
		if err == nil || len(err.Error()) > 100*maxProblems {
			t.Errorf("%.10s…: have %.1000v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/enrollment/*.toml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("enrollment.toml", data)
		if err != nil {
			if file != nil {
				t.Error("both a file and an error")
			}
			return
		}
		for _, e := range file.Services {
			if err := invariants(e); err != nil {
				t.Errorf("accepted %+v: %v", e, err)
			}
		}
	})
}

// invariants are what the rest of toad builds names, paths and times on.
func invariants(e probation.Enrollment) error {
	l, r := e.Limit, e.Ready
	if !serviceName.MatchString(e.Name) || len(e.Units) == 0 || e.Image == "" {
		return errors.New("lacks a name, units or an image")
	}
	for _, u := range e.Units {
		if filepath.Base(u) != u || strings.Count(u, "@") > 1 || !strings.HasSuffix(u, ".container") {
			return fmt.Errorf("unit %q", u)
		}
	}
	if l.Stable < r.Interval || l.Deadline < l.Stable+r.Interval+r.Timeout || l.Deadline > 24*time.Hour || l.Keep < 1 || l.Restarts < 0 {
		return errors.New("times")
	}
	kinds := 0
	for _, set := range []bool{r.HTTP != "", r.TCP != "", r.Unix != "", r.Health, r.Notify} {
		if set {
			kinds++
		}
	}
	if kinds > 1 || strings.Contains(r.TCP, "@") {
		return errors.New("readiness")
	}
	return nil
}
