package impair

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// Stream returns the random stream of that name. It follows from the seed and
// the name alone. A simulated world and a switch on real sockets that name their
// streams alike have the same in store for the same packets.
func NewRand(seed uint64, name string) *rand.Rand {
	key := binary.BigEndian.AppendUint64(nil, seed)
	sum := sha256.Sum256(append(key, name...))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// Streams returns what NewPipe takes its random numbers from, for one direction
// of one port: the stream of each kind of impairment is named after both, as
// package sim names it with place "net/port/up" or "net/port/down".
func RandSources(seed uint64, place string) func(kind string) Source {
	return func(kind string) Source { return NewRand(seed, place+"/"+kind) }
}
