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

// NewPattern returns the random bytes for a Content with messages of up to size bytes. Each message
// is a part of the pattern that begins at one of the first windowStarts offsets.
func NewPattern(seed uint64, size int) []byte {
	const period = 4093 // a prime, see fillPeriod
	p := make([]byte, size+windowStarts)
	fillPeriod(p, seed, period)
	return p
}

// Content generates and checks the messages of one flow.
type Content struct {
	Pattern []byte // from NewPattern
	Key     uint64 // different for every flow
}

// window returns the n random bytes of message seq, before stamps are written.
func (c *Content) window(seq, n int) []byte {
	start := Mix(c.Key+uint64(seq)) % windowStarts
	return c.Pattern[start : int(start)+n]
}

// stamp returns the number in the first StampLen bytes of a chunk of message seq. It is different
// for every chunk and message. Its first byte already tells consecutive messages apart.
func (c *Content) stamp(seq, chunk int) uint64 { return c.Key ^ (uint64(chunk)<<32 | uint64(seq)) }

// Fill fills b with message seq: a part of the pattern, with a stamp at the start of each chunk.
func (c *Content) Fill(b []byte, seq int) {
	copy(b, c.window(seq, len(b)))
	for at := 0; at < len(b); at += chunkLen {
		var s [StampLen]byte
		binary.LittleEndian.PutUint64(s[:], c.stamp(seq, at/chunkLen))
		copy(b[at:], s[:])
	}
}

// Matches reports whether b equals message seq of the same length.
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
	if at < len(b) { // the last chunk has only the start of its stamp
		var s [StampLen]byte
		binary.LittleEndian.PutUint64(s[:], c.stamp(seq, at/chunkLen))
		return bytes.Equal(b[at:], s[:len(b)-at])
	}
	return true
}

// ParseSeq returns the message number in the stamp at the start of b. ok is false if that is not a
// stamp of the given chunk of one of the messages 0 to messages-1.
func (c *Content) ParseSeq(b []byte, chunk, messages int) (seq int, ok bool) {
	if len(b) < StampLen {
		return 0, false
	}
	stamp := binary.LittleEndian.Uint64(b) ^ c.Key
	number := stamp & (1<<32 - 1)
	if int(stamp>>32) != chunk || number >= uint64(messages) {
		return 0, false
	}
	return int(number), true
}

// Describe describes how b differs from message seq; b must not be equal to that message. If the
// first differing chunk is one of another message, from 0 to messages-1, it names that message.
func (c *Content) Describe(b []byte, seq, messages int) string {
	want := make([]byte, len(b))
	c.Fill(want, seq)
	i, n := difference(want, b)
	s := fmt.Sprintf("byte %d of %d is %#02x, not %#02x (%d in a row differ)", i, len(b), b[i], want[i], n)
	chunk := i / chunkLen
	if other, ok := c.ParseSeq(b[chunk*chunkLen:], chunk, messages); ok && other != seq {
		s += fmt.Sprintf("; the bytes from %d on are those of message %d", chunk*chunkLen, other)
	}
	return s
}

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// Mix is the finalizer of splitmix64: it maps x to a pseudorandom number.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Derive returns a pseudorandom key that follows from a key and a list of numbers.
func Derive[N int | uint64](key uint64, numbers ...N) uint64 {
	for _, n := range numbers {
		key = Mix(key + golden*(uint64(n)+1))
	}
	return key
}

// Fill fills b with the random bytes of a key, which repeat after a period of 251.
func Fill(b []byte, key uint64) { fillPeriod(b, key, 251) }

// fillPeriod fills b with random bytes that repeat after a period, so that captures can be
// compressed. The period should be a prime: data at a wrong packet or page offset then differs.
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

// FirstDifference describes where got differs from want first; "" if they are equal.
func FirstDifference(want, got []byte) string {
	switch at, n := difference(want, got); {
	case n > 0:
		return fmt.Sprintf("byte %d is %#02x, not %#02x (%d bytes differ from there on)", at, got[at], want[at], n)
	case len(want) != len(got):
		return fmt.Sprintf("%d bytes, not %d", len(got), len(want))
	}
	return ""
}

// difference returns the offset of the first byte that differs, and the number n of consecutive
// bytes that differ from there on; n is 0 if none differs. It compares up to the shorter length.
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
