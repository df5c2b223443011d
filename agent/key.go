package agent

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// KeyLen is the length of a key in bytes.
const KeyLen = 32

// keyPrefix distinguishes a key from other secrets in files.
const keyPrefix = "fabrictest-agent-key-1:"

// Key is the shared secret of client and agent. It permits all verbs on the devices. It does
// not print itself; Text returns it.
type Key struct{ secret [KeyLen]byte }

// NewKey returns a random key.
func NewKey() (k Key) {
	rand.Read(k.secret[:]) // never fails
	return k
}

// Text returns the key as one line of text.
func (k Key) Text() string { return keyPrefix + base64.RawURLEncoding.EncodeToString(k.secret[:]) }

// String hides the key.
func (k Key) String() string { return "agent.Key(secret)" }

// GoString hides the key.
func (k Key) GoString() string { return k.String() }

func (k Key) isZero() bool { return k == Key{} }

// ParseKey parses the result of Text. Its errors do not contain the key.
func ParseKey(text string) (k Key, err error) {
	body, ok := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	if !ok {
		return Key{}, fmt.Errorf("not a key: keys begin with %q", keyPrefix)
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || len(b) != KeyLen {
		return Key{}, fmt.Errorf("invalid key: %q must be followed by %d characters of base64", keyPrefix, base64.RawURLEncoding.EncodedLen(KeyLen))
	}
	copy(k.secret[:], b)
	if k.isZero() {
		return Key{}, errors.New("the key is all zeros")
	}
	return k, nil
}

// maxKeyFile is larger than any key file.
const maxKeyFile = 1024

// ReadKey reads a key from a file that only its owner may access.
func ReadKey(file string) (Key, error) {
	f, err := cli.OpenFile(file)
	if err != nil {
		return Key{}, fmt.Errorf("the agent's key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of the opened file
	if err != nil {
		return Key{}, fmt.Errorf("the agent's key: %w", err)
	}
	if mode := info.Mode(); mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return Key{}, fmt.Errorf("the agent's key: others may read or write %s (%v): run chmod 600 on it, and make a new key if they may have read it", file, mode.Perm())
	}
	b := make([]byte, maxKeyFile)
	n, err := f.Read(b)
	if err != nil && n == 0 {
		return Key{}, fmt.Errorf("the agent's key: read %s: %w", file, err)
	}
	k, err := ParseKey(string(b[:n]))
	if err != nil {
		return Key{}, fmt.Errorf("the agent's key: %s: %w", file, err)
	}
	return k, nil
}

// WriteFile writes the key to a new file that only its owner may read.
func (k Key) WriteFile(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("the agent's key: %w", err)
	}
	_, err = f.WriteString(k.Text() + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the agent's key: %w", errors.Join(err, os.Remove(file)))
	}
	return nil
}
