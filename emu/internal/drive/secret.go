package drive

import "crypto/rand"

// Secret draws a secret that nobody can guess.
func NewSecret() (s [16]byte) {
	rand.Read(s[:]) // never fails
	return s
}
