package agent

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// KeyLen is the length of a key in bytes.
const KeyLen = 32

// keyPrefix tells a key from other secrets that people have in files.
const keyPrefix = "fabrictest-agent-key-1:"

// Key is what a caller and an agent have in common. Who has it may do to the devices
// whatever verbs can. It prints as nothing that is of use; Text is what to keep.
type Key struct{ secret [KeyLen]byte }

// NewKey returns a key that nobody has.
func NewKey() (k Key) {
	rand.Read(k.secret[:]) // it never fails
	return k
}

// Text is the key as one line of text, for a file.
func (k Key) Text() string { return keyPrefix + base64.RawURLEncoding.EncodeToString(k.secret[:]) }

// String does not tell the key.
func (k Key) String() string { return "agent.Key(secret)" }

// GoString does not tell it either.
func (k Key) GoString() string { return k.String() }

func (k Key) isZero() bool { return k == Key{} }

// ParseKey reads what Text wrote. It tells what is wrong, and nothing of the key.
func ParseKey(text string) (k Key, err error) {
	body, ok := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	if !ok {
		return Key{}, fmt.Errorf("no key: it begins with %q", keyPrefix)
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || len(b) != KeyLen {
		return Key{}, fmt.Errorf("a damaged key: behind %q come %d characters of base64", keyPrefix, base64.RawURLEncoding.EncodedLen(KeyLen))
	}
	copy(k.secret[:], b)
	if k.isZero() {
		return Key{}, errors.New("a key of zeros is no secret")
	}
	return k, nil
}

// maxKeyFile is more than any key.
const maxKeyFile = 1024

// ReadKey reads a key from a file. Nobody but its owner may be able to.
func ReadKey(file string) (Key, error) {
	f, err := regularfile.Open(file)
	if err != nil {
		return Key{}, fmt.Errorf("the agent's key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of what was opened, whatever is there by now
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

// WriteFile writes the key into a new file that only its owner may read.
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
