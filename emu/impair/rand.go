package impair

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// NewRand returns the random stream of that name, which depends only on the
// seed and the name. The simulation and the user-space switch use the same
// names, so that the same packets meet the same decisions.
func NewRand(seed uint64, name string) *rand.Rand {
	key := binary.BigEndian.AppendUint64(nil, seed)
	sum := sha256.Sum256(append(key, name...))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// RandSources returns the source argument of NewPipe for one direction of one
// port. Package sim uses the places "net/port/up" and "net/port/down".
func RandSources(seed uint64, place string) func(kind string) Source {
	return func(kind string) Source { return NewRand(seed, place+"/"+kind) }
}
