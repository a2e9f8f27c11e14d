// Command sample is the application in the test images: a small HTTP server whose one argument says
// how it behaves. It names its version in every body, so that a test can see which release answered.
//
//	sample BEHAVIOUR      serve; see behaviours below
//	sample health         GET /healthz of the one that is running; exit 0 or 1
//	sample                serve, as the line behind the end of its own file says: "#sample v1 good"
//
// A test can also change its mind at run time: /set/503 and /set/200 decide what /healthz answers,
// /exit/N ends it with status N, and ?sleep=2s holds back the answer to any request.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// behaviour is what distinguishes a bad release from a good one; the zero value is a good one.
type behaviour struct {
	exitAfter time.Duration // then exit with exitCode
	exitCode  int
	atOnce    bool          // exit before anything else
	leaks     bool          // tells its environment first
	readyIn   time.Duration // 503 until then
	never     bool          // 503 for ever
	flap      time.Duration // 200 and 503 in turns
	silent    bool          // no listener
	deaf      bool          // ignores SIGTERM
	termCode  int           // exit status after SIGTERM
	data      string        // keeps data below /data: reads, keeps or migrates what it finds there
}

var behaviours = map[string]behaviour{
	"good":       {},
	"crash":      {atOnce: true, exitCode: 2},
	"leak":       {atOnce: true, leaks: true, exitCode: 2},
	"late-crash": {exitAfter: 3 * time.Second, exitCode: 3},
	"late-exit0": {exitAfter: 4 * time.Second},
	"never":      {never: true},
	"slow":       {readyIn: 30 * time.Second},
	"slow5":      {readyIn: 5 * time.Second},
	"flap":       {flap: 300 * time.Millisecond},
	"silent":     {silent: true},
	"deaf":       {deaf: true},
	"t143":       {termCode: 143},

	"data1":         {data: "reads"},
	"data-kept":     {data: "keeps"},
	"data-migrated": {data: "migrates"},
}

// appended is what stands behind the end of this program's file, where a sample is a file and no image: its version and its
// behaviour. One program so makes releases of any number, each with bytes of its own.
func appended() (version, behaviour string) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", ""
	}
	defer f.Close()
	end := make([]byte, 100)
	n, err := f.Seek(-int64(len(end)), io.SeekEnd)
	if err == nil {
		_, err = f.ReadAt(end, n)
	}
	i := strings.LastIndex(string(end), "\n#sample ")
	if err != nil || i < 0 {
		return "", ""
	}
	version, behaviour, _ = strings.Cut(strings.TrimSpace(string(end[i+len("\n#sample "):])), " ")
	return version, behaviour
}

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "sample: %v\n", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if _, behaviour := appended(); len(args) == 0 && behaviour != "" {
		args = []string{behaviour}
	}
	if len(args) != 1 {
		return 64, errors.New("usage: sample BEHAVIOUR | sample health")
	}
	if args[0] == "health" {
		return health()
	}
	b, ok := behaviours[args[0]]
	if !ok {
		return 64, fmt.Errorf("unknown behaviour %q", args[0])
	}
	// AFTER moves the moment of the late ends, e.g. to fall into a stable window.
	if d, err := time.ParseDuration(os.Getenv("AFTER")); err == nil && b.exitAfter > 0 {
		b.exitAfter = d
	}
	if b.leaks {
		for _, e := range os.Environ() {
			fmt.Fprintln(os.Stderr, "environment:", e)
		}
	}
	if b.atOnce {
		return b.exitCode, errors.New("fatal: cannot read configuration")
	}
	if code, err := store(b.data); err != nil {
		return code, err
	}
	fmt.Printf("sample %s (%s) starts\n", version(), args[0])

	// As pid 1 of a container it would not die of SIGTERM by itself.
	term := make(chan os.Signal, 1)
	if !b.deaf {
		signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	} else {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	}
	end := make(chan int, 1)
	if b.exitAfter > 0 {
		time.AfterFunc(b.exitAfter, func() { end <- b.exitCode })
	}

	srv := &server{}
	if !b.silent {
		l, err := listener()
		if err != nil {
			return 1, err
		}
		srv.serve(l, newApp(b, end))
		if !b.never {
			time.AfterFunc(b.readyIn, func() { notify("READY=1\nSTATUS=" + version()) })
		}
	}
	go watchdog()

	select {
	case code := <-end:
		return code, fmt.Errorf("exiting with status %d", code)
	case <-term:
		return b.termCode, srv.end(8 * time.Second)
	}
}

// server is an HTTP server that answers everybody whom it has accepted before it ends. http.Server.Shutdown does not: it
// hangs up on whoever's request it has not read yet.
type server struct {
	http  http.Server
	l     net.Listener
	done  chan struct{} // Serve is back
	conns sync.WaitGroup
}

func (s *server) serve(l net.Listener, h http.Handler) {
	s.l, s.done, s.http.Handler = l, make(chan struct{}), h
	s.http.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.conns.Done()
		}
	}
	go func() {
		defer close(s.done)
		s.http.Serve(l)
	}()
}

// end accepts nobody any more, and waits until all answers are given, or for the limit.
func (s *server) end(limit time.Duration) error {
	if s.l == nil {
		return nil
	}
	s.http.SetKeepAlivesEnabled(false)
	s.l.Close()
	<-s.done
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.conns.Wait()
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(limit):
		return errors.New("not everybody was answered in time")
	}
}

// store is an application with data in a format: one reads it, the next keeps it readable and the third migrates it. The
// latter two then fail, for another reason.
func store(does string) (int, error) {
	const file = "/data/format"
	if does == "" {
		return 0, nil
	}
	format := "1"
	if b, err := os.ReadFile(file); err == nil {
		format = strings.TrimSpace(string(b))
	}
	if format != "1" {
		return 4, fmt.Errorf("fatal: /data has format %s, this release reads 1", format)
	}
	if does == "migrates" {
		format = "2"
	}
	if err := os.WriteFile(file, []byte(format+"\n"), 0o644); err != nil {
		return 4, err
	}
	if does == "reads" {
		return 0, nil
	}
	return 5, errors.New("fatal: no license found")
}

type app struct {
	behaviour
	started time.Time
	forced  atomic.Int64 // status that /set asked for
	end     chan<- int
}

func newApp(b behaviour, end chan<- int) http.Handler {
	a := &app{behaviour: b, started: time.Now(), end: end}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, http.StatusOK) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, a.status()) })
	mux.HandleFunc("/set/{status}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("status"))
		a.forced.Store(int64(n))
		a.answer(w, r, http.StatusOK)
	})
	mux.HandleFunc("/exit/{code}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("code"))
		a.answer(w, r, http.StatusOK)
		time.AfterFunc(50*time.Millisecond, func() { a.end <- n })
	})
	return mux
}

func (a *app) answer(w http.ResponseWriter, r *http.Request, status int) {
	if d, err := time.ParseDuration(r.URL.Query().Get("sleep")); err == nil {
		time.Sleep(d)
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, "version %s\n", version())
}

func (a *app) status() int {
	up := time.Since(a.started)
	switch forced := int(a.forced.Load()); {
	case forced != 0:
		return forced
	case a.never, up < a.readyIn, a.flap > 0 && (up/a.flap)%2 == 1:
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// version is in a file of the image, so that the layers of two releases differ.
func version() string {
	if version, _ := appended(); version != "" {
		return version
	}
	b, err := os.ReadFile("/version")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

func address() string {
	if p := os.Getenv("PORT"); p != "" {
		return ":" + p
	}
	return ":8080"
}

// listener takes the socket systemd passed, if any, else makes the Unix socket that LISTEN names. LISTEN_PID is not
// compared: a container's differs.
func listener() (net.Listener, error) {
	if n, _ := strconv.Atoi(os.Getenv("LISTEN_FDS")); n > 0 {
		return net.FileListener(os.NewFile(3, "listener"))
	}
	if path := os.Getenv("LISTEN"); path != "" {
		_ = os.Remove(path) // of the run before
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", address())
}

func notify(state string) {
	if path := os.Getenv("NOTIFY_SOCKET"); path != "" {
		if c, err := net.Dial("unixgram", path); err == nil {
			defer c.Close()
			c.Write([]byte(state))
		}
	}
}

func watchdog() {
	if usec, _ := strconv.Atoi(os.Getenv("WATCHDOG_USEC")); usec > 0 {
		for range time.Tick(time.Duration(usec) * time.Microsecond / 2) {
			notify("WATCHDOG=1")
		}
	}
}

func health() (int, error) {
	client := &http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://127.0.0.1" + address() + "/healthz")
	if err != nil {
		return 1, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 1, errors.New(resp.Status)
	}
	return 0, nil
}
