//go:build e2e

package rehearsal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"
)

// forged is an envelope with something else in it.
func forged(t *testing.T, envelope, old, new string) string {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal([]byte(envelope), &e); err != nil {
		t.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(e["payload"].(string))
	if err != nil || !bytes.Contains(payload, []byte(old)) {
		t.Fatalf("%q is not in %s", old, payload)
	}
	e["payload"] = base64.StdEncoding.EncodeToString(bytes.Replace(payload, []byte(old), []byte(new), 1))
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
