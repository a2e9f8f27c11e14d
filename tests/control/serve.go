package control

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Names are those that the servers' certificate holds, next to 127.0.0.1, ::1 and the bridge of joined hosts, 10.99.0.1.
var Names = []string{"localhost", "control.test", "bao.test"}

type authority struct {
	pem  []byte
	leaf tls.Certificate
}

// newAuthority makes a CA and a certificate of its, for a day. The keys are in memory only.
func newAuthority() *authority {
	day := func(c *x509.Certificate) *x509.Certificate {
		c.SerialNumber = big.NewInt(time.Now().UnixNano())
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		return c
	}
	key := func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }
	caKey, leafKey := key(), key()
	root := day(&x509.Certificate{Subject: pkix.Name{CommonName: "CA of the tests"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	ca := must(x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey))
	leaf := must(x509.CreateCertificate(rand.Reader, day(&x509.Certificate{
		Subject: pkix.Name{CommonName: "control.test"}, DNSNames: Names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 99, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}), root, leafKey.Public(), caKey))
	return &authority{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: leafKey}}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// CA is the certificate to pin, PEM.
func (w *World) CA() []byte { return w.ca.pem }

// Serve answers on a listener over HTTPS, with Control's or Bao's handler, until the returned function is called.
func (w *World) Serve(l net.Listener, h http.Handler) (stop func()) {
	return serve(w.TLS(l), h)
}

// TLS puts the servers' certificate in front of a listener.
func (w *World) TLS(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{w.ca.leaf}, MinVersion: tls.VersionTLS12})
}

// Both is the two servers in one, which are told apart by their paths.
func (w *World) Both() http.Handler {
	control, bao := w.Control(), w.Bao()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/agent/") {
			control.ServeHTTP(rw, r)
			return
		}
		bao.ServeHTTP(rw, r)
	})
}

// ServePlain is Serve without TLS, for a Unix socket such as a mesh's proxy has.
func (w *World) ServePlain(l net.Listener, h http.Handler) (stop func()) { return serve(l, h) }

func serve(l net.Listener, h http.Handler) func() {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	return func() { s.Close(); <-done }
}

// Loopback serves both on ports of the loopback until the test ends, and returns their addresses, https://127.0.0.1:port.
func (w *World) Loopback(t testing.TB) (control, bao string) {
	t.Helper()
	start := func(h http.Handler) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Serve(l, h))
		return "https://" + l.Addr().String()
	}
	return start(w.Control()), start(w.Bao())
}

// sign makes a JWT, with a signature that OpenBao's jwt mount takes by default.
func (w *World) sign(claims map[string]any) string {
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." + b64(must(json.Marshal(claims)))
	return text + "." + b64(ed25519.Sign(w.signing, []byte(text)))
}

func random(n int) string {
	b := make([]byte, n)
	must(rand.Read(b))
	return base64.RawURLEncoding.EncodeToString(b)
}
