package probation

import (
	"strings"
	"testing"
)

func FuzzDigest(f *testing.F) {
	for _, seed := range []string{"sha256:" + strings.Repeat("a", 64), "sha256:", "SHA256:" + strings.Repeat("A", 64), "sha512:", "", "sha256:" + strings.Repeat("a", 63) + "\n", "ſha256:\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, d string) {
		hex, ok := strings.CutPrefix(d, "sha256:")
		ok = ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
		if err := CheckDigest(d); (err == nil) != ok {
			t.Errorf("%q: %v", d, err)
		}
	})
}

func FuzzOperationID(f *testing.F) {
	for _, seed := range []string{"web-g7", "web-g07", "web-g", "-g1", "a-g1-g2", "web-g-1", "web-g999999999", "../web-g1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		service, generation, ok := ParseOperationID(id)
		if ok && (OperationID(service, generation) != id || CheckServiceName(service) != nil) {
			t.Errorf("%q was taken for %q %d", id, service, generation)
		}
	})
}
