package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// Mix is the finalizer of splitmix64.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Derive returns a key for each list of numbers under k.
func Derive[N int | uint64](k uint64, ns ...N) uint64 {
	for _, n := range ns {
		k = Mix(k + golden*(uint64(n)+1))
	}
	return k
}

// Fill writes the random bytes of a key.
func Fill(b []byte, key uint64) { fillPeriod(b, key, 251) }

// fillPeriod writes random bytes that repeat after a period, which lets captures be
// compressed. It is a prime: data at a wrong packet or page offset differs.
func fillPeriod(b []byte, key uint64, period int) {
	for first := b[:min(len(b), period)]; len(first) > 0; {
		var word [8]byte
		key += golden
		binary.LittleEndian.PutUint64(word[:], Mix(key))
		first = first[copy(first, word[:]):]
	}
	for at := period; at < len(b); {
		at += copy(b[at:], b[:period])
	}
}

// FirstDifference describes the first difference; "" if there is none.
func FirstDifference(want, got []byte) string {
	switch at, n := difference(want, got); {
	case n > 0:
		return fmt.Sprintf("byte %d is %#02x, not %#02x (%d bytes differ from there on)", at, got[at], want[at], n)
	case len(want) != len(got):
		return fmt.Sprintf("%d bytes, not %d", len(got), len(want))
	}
	return ""
}

// difference returns the first byte that differs, and how many in a row do.
func difference(want, got []byte) (at, n int) {
	both := min(len(want), len(got))
	if bytes.Equal(want[:both], got[:both]) {
		return 0, 0
	}
	for want[at] == got[at] {
		at++
	}
	for at+n < both && want[at+n] != got[at+n] {
		n++
	}
	return at, n
}
