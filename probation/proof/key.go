package proof

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// PrivateKey signs statements. Its text is nowhere but in its file.
type PrivateKey struct{ key ed25519.PrivateKey }

// PublicKey verifies them.
type PublicKey struct{ key ed25519.PublicKey }

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// NewKey makes a key and returns it as PKCS #8 in PEM, with its public half.
func NewKey() (private []byte, public PublicKey, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, PublicKey{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, PublicKey{}, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}), PublicKey{pub}, nil
}

// ParsePrivate reads a private key in PEM. No error holds a part of it.
func ParsePrivate(text []byte) (PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != privateBlock || strings.TrimSpace(string(rest)) != "" {
		return PrivateKey{}, errors.New("it does not hold one private key in PEM; make one with: toad proof keygen")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if k, ok := key.(ed25519.PrivateKey); err == nil && ok {
		return PrivateKey{k}, nil
	}
	return PrivateKey{}, errors.New("it is not an ed25519 key; make one with: toad proof keygen")
}

// Public is the half that policies name.
func (k PrivateKey) Public() PublicKey {
	pub, _ := k.key.Public().(ed25519.PublicKey)
	return PublicKey{pub}
}

// ParsePublic reads a public key in PEM, or the one line of base64 that is inside.
func ParsePublic(text string) (PublicKey, error) {
	text = strings.TrimSpace(text)
	var der []byte
	if block, rest := pem.Decode([]byte(text)); block != nil {
		if block.Type != publicBlock || strings.TrimSpace(string(rest)) != "" {
			return PublicKey{}, fmt.Errorf("a %q is not a public key; it is what toad proof keygen printed", strings.ToLower(block.Type))
		}
		der = block.Bytes
	} else {
		var err error
		if der, err = base64.StdEncoding.DecodeString(text); err != nil {
			return PublicKey{}, errors.New("it is neither a public key in PEM nor its one line of base64")
		}
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if k, ok := key.(ed25519.PublicKey); err == nil && ok {
		return PublicKey{k}, nil
	}
	return PublicKey{}, errors.New("it is not an ed25519 public key")
}

// Line is the key as policies hold it.
func (k PublicKey) Line() string { return base64.StdEncoding.EncodeToString(k.der()) }

// PEM is the key as other tools read it.
func (k PublicKey) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: k.der()}))
}

// ID names a key in a signature and to people; it proves nothing.
func (k PublicKey) ID() string {
	sum := sha256.Sum256(k.der())
	return "sha256:" + hex.EncodeToString(sum[:8])
}

func (k PublicKey) der() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.key)
	if err != nil {
		panic(err) // an ed25519 key always has this form
	}
	return der
}

// Sign, KeyID, Verify and Public make the keys those of the dsse package.

// Sign signs what dsse has encoded.
func (k PrivateKey) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(k.key, data), nil
}

// KeyID is the public half's name.
func (k PrivateKey) KeyID() (string, error) { return k.Public().ID(), nil }

// Verify checks one signature over what dsse has encoded.
func (k PublicKey) Verify(_ context.Context, data, sig []byte) error {
	if len(k.key) != ed25519.PublicKeySize || !ed25519.Verify(k.key, data, sig) {
		return errors.New("the signature is not of this key")
	}
	return nil
}

// KeyID is the key's name.
func (k PublicKey) KeyID() (string, error) { return k.ID(), nil }

// Public is the key itself.
func (k PublicKey) Public() crypto.PublicKey { return k.key }
