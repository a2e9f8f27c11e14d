package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// File is the answer to a file that was handed over.
type File struct {
	Service string `json:"service"`
	Digest  string `json:"digest"`
	Size    int64  `json:"size"` // bytes
}

// flushTimeout is how long the host may take to bring a file to its disk when all of it has arrived.
const flushTimeout = 5 * time.Minute

// PutFile hands the file of a binary service's release over: size bytes, whose sha256 is the digest. It may be repeated,
// with a reader at the file's beginning.
func (c *Client) PutFile(ctx context.Context, service, digest string, size int64, from io.Reader) error {
	path := "/v1/services/" + url.PathEscape(service) + "/files/" + url.PathEscape(digest)
	req, err := c.request(ctx, http.MethodPut, path, nil)
	if err != nil {
		return err
	}
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(from), size, nil
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Expect", "100-continue") // what is refused at once is answered before the file is sent
	client := *c.http
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t = t.Clone()
		t.ResponseHeaderTimeout = flushTimeout
		client.Transport = t
	}
	resp, err := client.Do(req)
	if err != nil {
		return &UnreachableError{c.endpoint, err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	var out File
	switch {
	case err != nil:
		return &UnreachableError{c.endpoint, err}
	case resp.StatusCode/100 != 2:
		return c.refusal(resp, data)
	case json.Unmarshal(data, &out) != nil || out.Digest != digest:
		return fmt.Errorf("answer of %s: it does not name the file; %w", c.endpoint, ErrNotToad)
	}
	return nil
}
