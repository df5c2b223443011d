package simdrive

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/sim"
)

// NewSecret draws a secret from a random stream of the world. The next call with the same
// stream returns another one.
func NewSecret(w *sim.World, stream string) (s [16]byte) {
	r := w.Rand(stream)
	binary.LittleEndian.PutUint64(s[:], r.Uint64())
	binary.LittleEndian.PutUint64(s[8:], r.Uint64())
	return s
}
