package interop

import "fmt"

const (
	// pageSize is the guest's: with -c the programs put a zero at the start of
	// every page of their first message, and the server wants it in its last.
	pageSize = 4096
	// fillByte is what the programs with queues of their own start from.
	fillByte = 0x7b
)

// A payload says what a message holds, byte by byte, without being stored.
type payload func(i int) byte

// numbered is the payload of our message n: no two positions a packet apart
// agree, nor do two messages, and it holds no zero, which tells it from memory
// that nobody wrote.
func numbered(n int) payload {
	return func(i int) byte {
		x := uint32(i+1)*2654435761 ^ uint32(n+1)*0x9e3779b1
		x ^= x >> 15
		return byte(x>>16)%255 + 1
	}
}

// constant is b everywhere.
func constant(b byte) payload { return func(int) byte { return b } }

// checked is p as a program that runs with -c expects it.
func (p payload) checked() payload {
	return func(i int) byte {
		if i%pageSize == 0 {
			return 0
		}
		return p(i)
	}
}

// fill writes the payload over b.
func (p payload) fill(b []byte) {
	for i := range b {
		b[i] = p(i)
	}
}

// check reports the first byte of b that none of the payloads explains.
func check(b []byte, anyOf ...payload) error {
	for i, got := range b {
		explained := false
		for _, p := range anyOf {
			explained = explained || p(i) == got
		}
		if !explained {
			return fmt.Errorf("byte %d of %d is %#02x, want %#02x", i, len(b), got, anyOf[0](i))
		}
	}
	return nil
}
