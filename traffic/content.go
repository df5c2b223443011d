package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The contents of a message follow from seed, ranks, connection and number alone: a window
// of random bytes that starts at another place for every message, with a stamp at the head
// of every chunk. A chunk is as small as the smallest packet, therefore a packet at the
// wrong place, of the wrong message or missing is detected.

const (
	chunkLen = 256 // the smallest MTU
	// StampLen is the length of a stamp: a shorter message does not hold its number.
	StampLen = 8
	// windowStarts is the number of places where a window can start.
	windowStarts = 4096
)

// NewPattern returns the random bytes of which messages of up to size bytes are windows.
func NewPattern(seed uint64, size int) []byte {
	p := make([]byte, size+windowStarts)
	fillPeriod(p, seed, 4093)
	return p
}

// Content generates and checks the messages of one flow.
type Content struct {
	Pattern []byte
	Key     uint64
}

// window returns the random bytes of message seq.
func (c *Content) window(seq, n int) []byte {
	at := Mix(c.Key+uint64(seq)) % windowStarts
	return c.Pattern[at : int(at)+n]
}

// stamp returns the head of a chunk. Stamps differ between the chunks of a message and
// between messages, for close messages already in the first byte.
func (c *Content) stamp(seq, chunk int) uint64 { return c.Key ^ (uint64(chunk)<<32 | uint64(seq)) }

// Fill writes message seq into b.
func (c *Content) Fill(b []byte, seq int) {
	copy(b, c.window(seq, len(b)))
	for at := 0; at < len(b); at += chunkLen {
		var s [StampLen]byte
		binary.LittleEndian.PutUint64(s[:], c.stamp(seq, at/chunkLen))
		copy(b[at:], s[:])
	}
}

// Matches reports whether b is message seq.
func (c *Content) Matches(b []byte, seq int) bool {
	window := c.window(seq, len(b))
	at := 0
	for chunk := 0; at+StampLen <= len(b); chunk++ {
		if binary.LittleEndian.Uint64(b[at:]) != c.stamp(seq, chunk) {
			return false
		}
		end := min(at+chunkLen, len(b))
		if !bytes.Equal(b[at+StampLen:end], window[at+StampLen:end]) {
			return false
		}
		at = end
	}
	if at < len(b) { // too short for a stamp
		var s [StampLen]byte
		binary.LittleEndian.PutUint64(s[:], c.stamp(seq, at/chunkLen))
		return bytes.Equal(b[at:], s[:len(b)-at])
	}
	return true
}

// ParseSeq returns the number of the message whose stamp is at b.
func (c *Content) ParseSeq(b []byte, chunk, messages int) (seq int, ok bool) {
	if len(b) < StampLen {
		return 0, false
	}
	x := binary.LittleEndian.Uint64(b) ^ c.Key
	if int(x>>32) != chunk || x&(1<<32-1) >= uint64(messages) {
		return 0, false
	}
	return int(x & (1<<32 - 1)), true
}

// Describe describes how b differs from message seq.
func (c *Content) Describe(b []byte, seq, messages int) string {
	want := make([]byte, len(b))
	c.Fill(want, seq)
	i, n := difference(want, b)
	if n == 0 {
		return "it is right"
	}
	s := fmt.Sprintf("byte %d of %d is %#02x, not %#02x (%d in a row differ)", i, len(b), b[i], want[i], n)
	chunk := i / chunkLen
	if other, ok := c.ParseSeq(b[chunk*chunkLen:], chunk, messages); ok && other != seq {
		s += fmt.Sprintf("; the bytes from %d on are those of message %d", chunk*chunkLen, other)
	}
	return s
}

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
