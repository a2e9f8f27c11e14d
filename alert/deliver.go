package alert

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Targets are the places that want to know. The webhook's address is a secret: it is in a file, and in no error.
type Targets struct {
	WebhookFile string   // a file that only its owner can read
	Command     []string // argv; the alert comes as JSON on stdin
}

const (
	webhookTimeout = 10 * time.Second
	commandTimeout = 30 * time.Second
)

// Deliver sends what waits in the spool, the oldest first. An alert that one target has is not sent to it again; the
// error says what is left, and the caller comes again.
func (s *Spool) Deliver(ctx context.Context, t Targets) error {
	all, err := s.entries()
	if err != nil {
		return err
	}
	var failed []error
	for i := range all {
		e := &all[i]
		if e.Told {
			continue
		}
		failed = append(failed, e.send(ctx, t)...)
		if e.Told = (e.Webhook || t.WebhookFile == "") && (e.Command || len(t.Command) == 0); e.Told || e.Webhook || e.Command {
			failed = append(failed, s.put(*e))
		}
	}
	return errors.Join(append(failed, s.sweep(all))...)
}

func (e *entry) send(ctx context.Context, t Targets) (failed []error) {
	body, err := json.Marshal(e.Alert)
	if err != nil {
		return []error{err}
	}
	if t.WebhookFile != "" && !e.Webhook {
		if err := post(ctx, t.WebhookFile, body); err != nil {
			failed = append(failed, fmt.Errorf("alert %s: webhook: %w", e.ID, err))
		} else {
			e.Webhook = true
		}
	}
	if len(t.Command) > 0 && !e.Command {
		if err := run(ctx, t.Command, body); err != nil {
			failed = append(failed, fmt.Errorf("alert %s: %s: %w", e.ID, t.Command[0], err))
		} else {
			e.Command = true
		}
	}
	return failed
}

// post sends an alert to the address in a file. A redirect is a failure: the address is the operator's to choose.
func post(ctx context.Context, file string, body []byte) error {
	address, err := readAddress(file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address in the webhook file is not one")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "toad-alert")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return withoutAddress(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %d", resp.StatusCode)
	}
	return nil
}

func readAddress(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("webhook file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("webhook file %s can be read by others; chmod 600 it", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("webhook file: %w", err)
	}
	address := strings.TrimSpace(string(data))
	if u, err := url.Parse(address); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("webhook file %s holds no http or https address", file)
	}
	return address, nil
}

// withoutAddress says what went wrong without the address, which Go's errors repeat in several places.
func withoutAddress(err error) error {
	var timeout interface{ Timeout() bool }
	var lookup *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return syscall.ECONNREFUSED
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	case errors.As(err, &lookup):
		return errors.New("its name cannot be looked up")
	case errors.As(err, &certificate):
		return errors.New("its certificate is not accepted")
	}
	return errors.New("no answer")
}

func run(ctx context.Context, argv []string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(body), time.Second
	return cmd.Run()
}
