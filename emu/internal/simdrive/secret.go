package simdrive

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/sim"
)

// Secret draws a secret from a stream of the world. The next draw of the same stream is
// another: a device that is opened anew on the same port has a secret of its own.
func NewSecret(w *sim.World, stream string) (s [16]byte) {
	r := w.Rand(stream)
	binary.LittleEndian.PutUint64(s[:], r.Uint64())
	binary.LittleEndian.PutUint64(s[8:], r.Uint64())
	return s
}
