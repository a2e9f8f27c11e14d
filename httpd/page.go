package httpd

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Page is a listener on which Options.Page is answered, and nothing of the API.
type Page struct{ net.Listener }

// pageServer answers on the page's socket. Who may connect there is for the folder of the socket to say: it shows only
// what may be shown, and nothing can be done through it.
func (s *Server) pageServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.page),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       s.arrival,
		WriteTimeout:      answerLimit, // a stream sets its own
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    headBytes,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}

// page lends the page's handler what every request has: it keeps the daemon, and ends with it.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.pages++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pages--
		s.rested = s.now()
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	s.Options.Page.ServeHTTP(w, r.WithContext(ctx))
}
