package drive

import "crypto/rand"

// NewSecret returns a random secret, from which a device derives its memory keys.
func NewSecret() (s [16]byte) {
	rand.Read(s[:]) // never fails
	return s
}
