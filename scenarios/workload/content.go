package workload

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
	stampLen = 8
	// windowStarts is the number of places where a window can start.
	windowStarts = 4096

	golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
)

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// derive returns a key for each list of numbers under k.
func derive(k uint64, ns ...int) uint64 {
	for _, n := range ns {
		k = mix(k + golden*(uint64(n)+1))
	}
	return k
}

// newPattern returns the random bytes of which messages of up to size bytes are windows.
// They repeat with a prime period, which lets captures be compressed but is no multiple of
// a chunk, packet or page.
func newPattern(seed uint64, size int) []byte {
	const period = 4093 // a prime
	p := make([]byte, (max(size+windowStarts, period)+7)&^7)
	for i := 0; i < period; i += 8 {
		seed += golden
		binary.LittleEndian.PutUint64(p[i:], mix(seed))
	}
	for i := period; i < len(p); {
		i += copy(p[i:], p[:period])
	}
	return p
}

// content generates and checks the messages of one flow.
type content struct {
	pattern []byte
	key     uint64
}

// window returns the random bytes of message seq.
func (c *content) window(seq, n int) []byte {
	at := mix(c.key+uint64(seq)) % windowStarts
	return c.pattern[at : int(at)+n]
}

// stamp returns the head of a chunk. Stamps differ between the chunks of a message and
// between messages, for close messages already in the first byte.
func (c *content) stamp(seq, chunk int) uint64 { return c.key ^ (uint64(chunk)<<32 | uint64(seq)) }

// fill writes message seq into b.
func (c *content) fill(b []byte, seq int) {
	copy(b, c.window(seq, len(b)))
	for at := 0; at < len(b); at += chunkLen {
		var s [stampLen]byte
		binary.LittleEndian.PutUint64(s[:], c.stamp(seq, at/chunkLen))
		copy(b[at:], s[:])
	}
}

// matches reports whether b is message seq.
func (c *content) matches(b []byte, seq int) bool {
	window := c.window(seq, len(b))
	at := 0
	for chunk := 0; at+stampLen <= len(b); chunk++ {
		if binary.LittleEndian.Uint64(b[at:]) != c.stamp(seq, chunk) {
			return false
		}
		end := min(at+chunkLen, len(b))
		if !bytes.Equal(b[at+stampLen:end], window[at+stampLen:end]) {
			return false
		}
		at = end
	}
	if at < len(b) { // too short for a stamp
		var s [stampLen]byte
		binary.LittleEndian.PutUint64(s[:], c.stamp(seq, at/chunkLen))
		return bytes.Equal(b[at:], s[:len(b)-at])
	}
	return true
}

// parseSeq returns the number of the message whose stamp is at b.
func (c *content) parseSeq(b []byte, chunk, messages int) (seq int, ok bool) {
	if len(b) < stampLen {
		return 0, false
	}
	x := binary.LittleEndian.Uint64(b) ^ c.key
	if int(x>>32) != chunk || x&(1<<32-1) >= uint64(messages) {
		return 0, false
	}
	return int(x & (1<<32 - 1)), true
}

// describe describes how b differs from message seq.
func (c *content) describe(b []byte, seq, messages int) string {
	want := make([]byte, len(b))
	c.fill(want, seq)
	for i := range b {
		if b[i] == want[i] {
			continue
		}
		n := i
		for n < len(b) && b[n] != want[n] {
			n++
		}
		s := fmt.Sprintf("byte %d of %d is %#02x, not %#02x (%d in a row differ)", i, len(b), b[i], want[i], n-i)
		chunk := i / chunkLen
		if other, ok := c.parseSeq(b[chunk*chunkLen:], chunk, messages); ok && other != seq {
			s += fmt.Sprintf("; the bytes from %d on are those of message %d", chunk*chunkLen, other)
		}
		return s
	}
	return "it is right"
}
