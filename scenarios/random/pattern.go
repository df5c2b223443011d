package random

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// derive returns the key number n under k.
func derive(k, n uint64) uint64 { return mix(k + golden*(n+1)) }

// newRand returns a random generator with seed k.
func newRand(k uint64) *rand.Rand { return rand.New(rand.NewPCG(k, mix(k))) }

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

// period is the length after which bytes of a key repeat, which lets captures be
// compressed. It is a prime: data at a wrong packet or page offset differs.
const period = 251

// fill writes the bytes of key k.
func fill(b []byte, k uint64) {
	for first := b[:min(len(b), period)]; len(first) > 0; {
		var word [8]byte
		k += golden
		binary.LittleEndian.PutUint64(word[:], mix(k))
		first = first[copy(first, word[:]):]
	}
	for at := period; at < len(b); {
		at += copy(b[at:], b[:period])
	}
}

// firstDifference describes the first difference; "" if there is none.
func firstDifference(want, got []byte) string {
	if bytes.Equal(want, got) {
		return ""
	}
	for i := range want {
		if i >= len(got) {
			break
		}
		if want[i] != got[i] {
			n := i
			for n < len(want) && n < len(got) && want[n] != got[n] {
				n++
			}
			return fmt.Sprintf("byte %d is %#02x, not %#02x (%d bytes differ from there on)", i, got[i], want[i], n-i)
		}
	}
	return fmt.Sprintf("%d bytes, not %d", len(got), len(want))
}

// stamp writes the number of an unreliable message before its payload.
func stamp(b []byte, k uint64, n int) {
	if len(b) >= stampLen {
		binary.LittleEndian.PutUint64(b, mix(k)^uint64(n))
	}
}

// stampOf reads the number. Without a stamp it is most likely far beyond any plan.
func stampOf(b []byte, k uint64) uint64 { return binary.LittleEndian.Uint64(b) ^ mix(k) }

const stampLen = 8
