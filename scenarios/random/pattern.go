package random

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/traffic"
)

// newRand returns a random generator with seed k.
func newRand(k uint64) *rand.Rand { return rand.New(rand.NewPCG(k, traffic.Mix(k))) }

// Purposes of derived keys.
const (
	keyPlan uint64 = iota
	keyPayload
	keyTarget
	keyPieces
	keyPacing
	keyWords
	keyPoison
)

// stamp writes the number of an unreliable message before its payload.
func stamp(b []byte, k uint64, n int) {
	if len(b) >= traffic.StampLen {
		binary.LittleEndian.PutUint64(b, traffic.Mix(k)^uint64(n))
	}
}

// stampOf reads the number. Without a stamp it is most likely far beyond any plan.
func stampOf(b []byte, k uint64) uint64 { return binary.LittleEndian.Uint64(b) ^ traffic.Mix(k) }
