package probation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Definition is what a release is beside its image where it brings the text of its units, and with it the versions of the
// secrets that they name. All of it is on trial with the image, and is put back with it.
type Definition struct {
	SHA   string            `json:"sha"`             // 64 hex digits over all the rest
	Texts map[string]string `json:"texts,omitempty"` // Quadlet text by file name; left out where only the SHA matters
	Ready Ready             `json:"ready"`           // a release that listens elsewhere is ready elsewhere
}

// Define makes a definition of the texts of a service's units, by file name.
func Define(texts map[string]string, ready Ready) *Definition {
	d := &Definition{Texts: texts, Ready: ready}
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // texts, numbers and booleans
	}
	sum := sha256.Sum256(data)
	d.SHA = hex.EncodeToString(sum[:])
	return d
}

// Same reports whether two releases bring the same; nil is one that brings nothing.
func (d *Definition) Same(o *Definition) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.SHA == o.SHA
}

// Text is that of one unit; empty where the release brings none.
func (d *Definition) Text(unit string) string {
	if d == nil {
		return ""
	}
	return d.Texts[unit]
}

// Brief is a definition without its texts, as a refusal keeps it.
func (d *Definition) Brief() *Definition {
	if d == nil {
		return nil
	}
	return &Definition{SHA: d.SHA, Ready: d.Ready}
}

// Asks says how readiness is found out in the operation's phase: what is put back is asked as it says itself.
func (op Operation) Asks() Ready {
	if p := op.Previous; op.Phase == Restoring && p != nil && p.Definition != nil {
		return p.Definition.Ready
	}
	return op.Enrollment.Ready
}
