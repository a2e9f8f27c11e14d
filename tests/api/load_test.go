//go:build e2e

package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toad/tests/host"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	token := d.token(t, "--services", "web")

	t.Run("50 clients with one key are one operation", func(t *testing.T) {
		ids, statuses := d.atOnce(t, token, func(int) (key, body string) { return "same", fmt.Sprintf(`{"digest":%q}`, d.Digest(t, "v2")) })
		if len(ids) != 1 || ids["web-g1"] != 50 || statuses[202] != 1 || statuses[200] != 49 {
			t.Errorf("have %v, %v", ids, statuses)
		}
		d.ended(t)
		if have := d.acts(t, "web-g1"); have != 1 {
			t.Errorf("it was begun %d times", have)
		}
	})
	t.Run("50 keys with one generation are one operation", func(t *testing.T) {
		_, statuses := d.atOnce(t, token, func(i int) (key, body string) {
			return fmt.Sprintf("own-%d", i), fmt.Sprintf(`{"digest":%q,"expected_generation":1}`, d.Digest(t, "v3"))
		})
		if statuses[202] != 1 || statuses[409] != 49 {
			t.Errorf("have %v", statuses)
		}
		d.ended(t)
		if have := d.Record(t).Generation; have != 2 {
			t.Errorf("want generation 2, have %d", have)
		}
	})
	t.Run("readers and writers", func(t *testing.T) { d.underLoad(t, token) })
}

// atOnce lets 50 clients post a deployment at the same instant.
func (d door) atOnce(t *testing.T, token string, what func(i int) (key, body string)) (ids, statuses map[any]int) {
	t.Helper()
	ids, statuses = map[any]int{}, map[any]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range 50 {
		key, body := what(i)
		all.Go(func() {
			<-start
			status, answer := d.post(t, token, key, body)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			if status/100 == 2 {
				ids[answer]++
			}
		})
	}
	close(start)
	all.Wait()
	return ids, statuses
}

// post asks for a deployment and returns the operation's id.
func (d door) post(t *testing.T, token, key, body string) (status int, id string) {
	t.Helper()
	req, err := http.NewRequest("POST", "http://"+tcp+"/v1/services/web/deployments", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}, "Authorization": {"Bearer " + token}}
	resp, err := d.client("tcp").Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	a, err := read(resp)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	var op struct{ ID string }
	if a.Status/100 == 2 {
		if err := json.Unmarshal([]byte(a.Body), &op); err != nil {
			t.Errorf("%v in %s", err, a.Body)
		}
	}
	return a.Status, op.ID
}

// ended waits until the operation under way is promoted, however busy the machine is with all those clients.
func (d door) ended(t *testing.T) {
	t.Helper()
	host.Eventually(t, "the promotion", 4*time.Minute, func() bool { return d.Record(t).Operation.Phase == "promoted" })
	d.Quiet(t)
}

// acts counts how often an operation was taken up, by its log.
func (d door) acts(t *testing.T, id string) int {
	t.Helper()
	return strings.Count(d.MustUser(t, "cat", ".local/state/toad/operations/"+id+".log"), `"event":"preparing"`)
}

// underLoad has 200 readers and 20 writers ask for a while. What is asserted is counted: nothing answered is lost, and
// nothing is done twice.
func (d door) underLoad(t *testing.T, token string) {
	length := 3 * time.Second
	if os.Getenv("TOAD_ALL") == "1" {
		length = 20 * time.Second
	}
	d.ask(t, "tcp", "GET", "/healthz", "", nil)
	resident := func() int { return d.resident(t) }
	before := resident()
	var all sync.WaitGroup
	var reads, faults atomic.Int64
	var mu sync.Mutex
	accepted := map[string]string{} // operation by key
	end := time.Now().Add(length)
	client := d.client("tcp")
	paths := []string{"/v1/services", "/v1/services/web", "/v1/services/web/operations", "/v1/operations/web-g1", "/v1/operations/web-g1/log", "/healthz"}
	for i := range 200 {
		all.Go(func() {
			for time.Now().Before(end) {
				req, _ := http.NewRequest("GET", "http://"+tcp+paths[i%len(paths)], nil)
				req.Header.Set("Authorization", "Bearer "+token)
				resp, err := client.Do(req)
				if err != nil {
					faults.Add(1)
					t.Logf("reader %d: %v", i, err)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				reads.Add(1)
				if resp.StatusCode != 200 {
					faults.Add(1)
					t.Logf("reader %d: %d", i, resp.StatusCode)
				}
			}
		})
	}
	digests := []string{d.Digest(t, "v4"), d.Digest(t, "v5")}
	var writes atomic.Int64
	for i := range 20 {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				key := fmt.Sprintf("w%d-%d", i, n)
				status, id := d.post(t, token, key, fmt.Sprintf(`{"digest":%q}`, digests[n%2]))
				writes.Add(1)
				switch status {
				case 202:
					mu.Lock()
					accepted[key] = id
					mu.Unlock()
				case 200, 409: // in force already, or another is under way
				default:
					faults.Add(1)
					t.Logf("writer %d: %d", i, status)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d reads, %d writes, %d accepted, in %v", reads.Load(), writes.Load(), len(accepted), length)
	if faults.Load() > 0 || reads.Load() == 0 || len(accepted) == 0 {
		t.Errorf("%d faults, %d reads, %d accepted", faults.Load(), reads.Load(), len(accepted))
	}
	d.ended(t)
	d.kept(t, accepted)
	// What the load took is given back, but for what the runtime keeps for the next one.
	host.Eventually(t, "the memory to come back", 2*time.Minute, func() bool {
		d.ask(t, "tcp", "GET", "/healthz", "", nil)
		return resident() < before+24<<10
	})
}

// resident is the memory of the daemon that is its own, in KiB.
func (d door) resident(t *testing.T) (kb int) {
	t.Helper()
	for _, pid := range d.Pids(t, "toad.service") {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			var n int
			if _, err := fmt.Sscanf(string(line), "RssAnon: %d kB", &n); err == nil {
				kb += n
			}
		}
	}
	return kb
}

// kept asserts that every operation that was accepted is on record, under its key, once, and was taken up once.
func (d door) kept(t *testing.T, accepted map[string]string) {
	t.Helper()
	ids := map[string]bool{}
	for key, id := range accepted {
		if ids[id] {
			t.Errorf("%s was made twice", id)
		}
		ids[id] = true
		if have := d.acts(t, id); have != 1 {
			t.Errorf("%s was taken up %d times", id, have)
		}
		text := d.MustUser(t, "sh", "-c", fmt.Sprintf("cat .local/state/toad/operations/%s.json 2>/dev/null || cat .local/state/toad/services/web.json", id))
		if !strings.Contains(text, fmt.Sprintf(`"key": %q`, key)) || !strings.Contains(text, fmt.Sprintf(`"id": %q`, id)) {
			t.Errorf("the record of %s is lost: %s", id, text)
		}
	}
	if want, have := 2+len(accepted), d.Record(t).Generation; want != have {
		t.Errorf("want generation %d, have %d", want, have)
	}
}
