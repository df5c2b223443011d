package fuzz_test

import "math/rand/v2"

// noise is n octets that look random, the same each time.
func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0xf022))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
