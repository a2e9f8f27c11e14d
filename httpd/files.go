package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// Files takes in the files that binary services run. Errors are *FileError, or the host's trouble.
type Files interface {
	// Stage keeps what it reads under its digest, or nothing.
	Stage(ctx context.Context, e probation.Enrollment, digest string, size int64, from io.Reader) error
}

// FileError says why a file is not taken.
type FileError struct{ Err error }

func (e *FileError) Error() string { return e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

const (
	// fileStep is how long a file may stand still on its way here, fileLimit how long all of it may take.
	fileStep  = 30 * time.Second
	fileLimit = 30 * time.Minute
)

// putFile is PUT /v1/services/:service/files/:digest; it may be repeated. One file at a time is taken in.
func (s *Server) putFile(c *call) error {
	name, digest, err := s.proofOf(c)
	if err != nil {
		return err
	}
	if t, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || t != "application/octet-stream" {
		return refuse(http.StatusUnsupportedMediaType, CodeMediaType, "send Content-Type: application/octet-stream")
	}
	switch size := c.r.ContentLength; {
	case size < 1:
		return invalid("send the file as the body, with its Content-Length")
	case size > s.MaxFile:
		return refuse(http.StatusRequestEntityTooLarge, CodeTooLarge, fmt.Sprintf("the file has %d MiB, and %d MiB is the most", size>>20, s.MaxFile>>20))
	}
	e, err := s.enrollment(name)
	if err != nil {
		return err
	}
	if !s.shipping.TryLock() {
		return busy("files on their way here")
	}
	defer s.shipping.Unlock()
	control := http.NewResponseController(c)
	_ = control.SetWriteDeadline(s.now().Add(fileLimit))
	ctx, cancel := context.WithTimeout(c.r.Context(), fileLimit)
	defer cancel()
	body := &steps{from: http.MaxBytesReader(c, c.r.Body, s.MaxFile), control: control}
	err = s.Files.Stage(ctx, e, digest, c.r.ContentLength, body)
	var wrong *FileError
	switch {
	case errors.As(err, &wrong):
		_, _ = io.Copy(io.Discard, body) // who is still sending would not see the answer
		return invalid(wrong.Error())
	case body.err != nil:
		return invalid("the file did not arrive in full")
	case err != nil:
		return err
	}
	writeJSON(c, http.StatusOK, api.File{Service: name, Digest: digest, Size: c.r.ContentLength})
	return nil
}

// steps gives each part of a body time to arrive.
type steps struct {
	from    io.Reader
	control *http.ResponseController
	err     error
}

func (s *steps) Read(p []byte) (int, error) {
	_ = s.control.SetReadDeadline(time.Now().Add(fileStep))
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
