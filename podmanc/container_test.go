package podmanc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func answer(text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write([]byte(text))
		return true
	}
}

func TestAContainerIsReadAsPodmanTellsIt(t *testing.T) {
	f, c := startPodman(t)
	f.before = append(f.before, pass, answer(`{"Id":"c1","Name":"web","Image":"i1","ImageName":"`+repo+`@sha256:1",
		"Config":{"Labels":{"PODMAN_SYSTEMD_UNIT":"web.service","a":"b"},"Env":["DB_PW=S3NT1NEL"]},
		"State":{"Running":true,"Status":"running","ExitCode":0,"Pid":42,"StartedAt":"2026-11-29T20:00:00.5Z","Health":{"Status":"starting"}},
		"HostConfig":{"NetworkMode":"host"},
		"NetworkSettings":{"Ports":{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"18080"}],"53/udp":[{"HostIp":"","HostPort":"53"}],"9/tcp":null}}}`))
	have, err := c.Container(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	want := Container{
		ID: "c1", Name: "web", ImageID: "i1", ImageRef: repo + "@sha256:1",
		Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "web.service", "a": "b"}, Unit: "web.service",
		Running: true, Status: "running", Health: "starting", Pid: 42, HostNetwork: true,
		StartedAt: time.Date(2026, 11, 29, 20, 0, 0, 5e8, time.UTC),
		Ports:     []Port{{"", 53, 53, "udp"}, {"127.0.0.1", 18080, 8080, "tcp"}},
	}
	if !reflect.DeepEqual(want, have) {
		t.Errorf("\nwant %+v\nhave %+v", want, have)
	}
}

func TestAnExitedContainerHasItsStatus(t *testing.T) {
	f, c := startPodman(t)
	f.before = append(f.before, pass, answer(`{"Id":"c1","Name":"web","State":{"Running":false,"Status":"exited","ExitCode":137,"StartedAt":"0001-01-01T00:00:00Z"}}`))
	have, err := c.Container(t.Context(), "web")
	if want := (Container{ID: "c1", Name: "web", Status: "exited", ExitCode: 137}); err != nil || !reflect.DeepEqual(want, have) {
		t.Errorf("want %+v, have %+v, %v", want, have, err)
	}
}

func TestContainersAreListedByLabelRunningAndNot(t *testing.T) {
	f, c := startPodman(t)
	f.before = append(f.before, pass, func(w http.ResponseWriter, r *http.Request) bool {
		if q := r.URL.Query(); q.Get("all") != "true" || q.Get("filters") != `{"label":["io.toad.operation=web-g7"]}` {
			t.Errorf("asked with %s", r.URL.RawQuery)
		}
		return answer(`[{"Id":"c1","Names":["web"],"ImageID":"i1","Image":"r/x","State":"running","Pid":42,"StartedAt":1764446400,"Labels":{"PODMAN_SYSTEMD_UNIT":"web.service"}},
			{"Id":"c2","State":"exited","ExitCode":2,"StartedAt":-62135596800}]`)(w, r)
	})
	have, err := c.Containers(t.Context(), "io.toad.operation=web-g7")
	if err != nil || len(have) != 2 {
		t.Fatalf("have %+v, %v", have, err)
	}
	if h := have[0]; !h.Running || h.Name != "web" || h.Unit != "web.service" || h.ImageID != "i1" || h.Pid != 42 || h.StartedAt.Unix() != 1764446400 {
		t.Errorf("have %+v", h)
	}
	if h := have[1]; h.Running || h.ExitCode != 2 || !h.StartedAt.IsZero() {
		t.Errorf("have %+v", h)
	}
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	_, c := startPodman(t)
	if _, err := c.Container(t.Context(), "web"); !errors.Is(err, ErrNoContainer) || !strings.Contains(err.Error(), "web") {
		t.Errorf("have %v", err)
	}
	if _, err := c.Logs(t.Context(), "web", 3); !errors.Is(err, ErrNoContainer) {
		t.Errorf("have %v", err)
	}
	if _, err := c.Image(t.Context(), newFakeImage("web").ref()); !errors.Is(err, ErrNoImage) {
		t.Errorf("have %v", err)
	}
}

func frame(stream byte, text string) string {
	h := []byte{stream, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(h[4:], uint32(len(text)))
	return string(h) + text
}

func TestLogsAreTheLastLinesOfBothStreamsInOrder(t *testing.T) {
	f, c := startPodman(t)
	f.before = append(f.before, pass, answer(frame(1, "one\ntwo\n")+frame(2, "thr")+frame(2, "ee\n")+frame(1, "\n")+frame(1, "five")))
	have, err := c.Logs(t.Context(), "web", 4)
	if want := []string{"two", "three", "", "five"}; err != nil || !slices.Equal(want, have) {
		t.Errorf("want %q, have %q, %v", want, have, err)
	}
}

func TestAnEndlessLineIsCut(t *testing.T) {
	f, c := startPodman(t)
	long := frame(1, strings.Repeat("x", 10_000))
	f.before = append(f.before, pass, answer(long+long+long+frame(1, "\nend\n")))
	have, err := c.Logs(t.Context(), "web", 10)
	if err != nil || len(have) != 2 || len(have[0]) != maxLine || have[1] != "end" {
		t.Errorf("have %d lines, %v", len(have), err)
	}
}

func TestAnImageIsReadAsPodmanTellsIt(t *testing.T) {
	f, c := startPodman(t)
	id, d1, d2 := strings.Repeat("a", 64), "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	text, _ := json.Marshal(map[string]any{
		"Id": id, "Digest": d2, "RepoDigests": []string{repo + "@" + d2, repo + "@" + d1, "other/x@" + d1},
		"Os": "linux", "Architecture": "amd64", "Size": 7, "Created": "2026-01-01T00:00:00Z", "User": "65532", "Labels": map[string]string{"a": "b"},
		"Config": map[string]any{
			"Env": []string{"PATH=/bin", "DB_PW=S3NT1NEL"}, "Entrypoint": []string{"/app"}, "Cmd": []string{"good"},
			"ExposedPorts": map[string]any{"8080/tcp": map[string]any{}},
		},
		"Healthcheck": map[string]any{"Test": []string{"CMD", "/app", "health"}},
	})
	f.before = append(f.before, pass, answer(string(text)))
	have, err := c.Image(t.Context(), repo+"@"+d1)
	want := Image{
		ID: id, Digest: d2, Digests: []string{d1, d2}, RepoDigests: []string{repo + "@" + d2, repo + "@" + d1, "other/x@" + d1},
		OS: "linux", Architecture: "amd64", Size: 7, Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), User: "65532",
		Labels: map[string]string{"a": "b"}, EnvNames: []string{"DB_PW", "PATH"}, Entrypoint: []string{"/app"}, Cmd: []string{"good"},
		Path: "/bin", ExposedPorts: []string{"8080/tcp"}, Healthcheck: true,
	}
	if err != nil || !reflect.DeepEqual(want, have) {
		t.Errorf("\nwant %+v\nhave %+v, %v", want, have, err)
	}
}
