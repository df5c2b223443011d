package rig

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// A missing write must be detected wherever it should have gone: no two consecutive
// bytes of initial memory equal those of a message.
func TestInitialMemoryResemblesNoMessage(t *testing.T) {
	message := Pattern(1024, 0x5a)
	for which := range 256 {
		memory := fill(4096, byte(which))
		for off := range 300 {
			for i := 1; i < len(message); i++ {
				if memory[off+i-1] == message[i-1] && memory[off+i] == message[i] {
					t.Fatalf("memory %d has bytes %d and %d of a message at %d", which, i-1, i, off)
				}
			}
		}
	}
}

// mrAt is a region at a fixed address.
type mrAt struct {
	verbs.MR
	addr uint64
}

func (m mrAt) Addr() uint64 { return m.addr }

func TestWordOffsetsAreAligned(t *testing.T) {
	for base := uint64(0x1000); base < 0x1010; base++ {
		m := &Memory{MR: mrAt{addr: base}}
		for n := range 3 {
			off := m.WordOffset(n)
			if (base+uint64(off))%8 != 0 || off < 8*n || off >= 8*n+8 {
				t.Errorf("word %d of a region at %#x is at offset %d", n, base, off)
			}
		}
	}
}

func TestCheckPrivateDataAllowsZeroPadding(t *testing.T) {
	want := []byte{1, 2, 3}
	for _, c := range []struct {
		got []byte
		ok  bool
	}{
		{[]byte{1, 2, 3}, true},
		{[]byte{1, 2, 3, 0, 0}, true},
		{[]byte{1, 2, 3, 0, 4}, false},
		{[]byte{1, 2}, false},
		{nil, false},
		{[]byte{9, 1, 2, 3}, false},
	} {
		err := Catch(func() { (&Rig{}).CheckPrivateData("a test", c.got, want) })
		if (err == nil) != c.ok || err != nil && !conformance.IsViolation(err) {
			t.Errorf("private data % x for % x: %v", c.got, want, err)
		}
	}
}
