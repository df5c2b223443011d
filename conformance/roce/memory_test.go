package roce

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// placedMR is a region somewhere.
type placedMR struct {
	verbs.MR
	at uint64
}

func (m placedMR) Addr() uint64 { return m.at }

func TestWordsAreAlignedWhereverTheRegionIs(t *testing.T) {
	for base := uint64(0x1000); base < 0x1010; base++ {
		m := &rig.Memory{MR: placedMR{at: base}}
		for n := range 3 {
			off := word(m, n)
			if (base+uint64(off))%8 != 0 || off < 8*n || off >= 8*n+8 {
				t.Errorf("word %d of a region at %#x is at offset %d", n, base, off)
			}
		}
	}
}

func TestStrangeKeysDifferInIndexAndTag(t *testing.T) {
	for _, k := range []verbs.RKey{0, 0x100, 0x80001234, 0xffffffff} {
		if s := strangeKey(k); s>>8 == k>>8 || s&0xff == k&0xff || strangeKey(s) != k {
			t.Errorf("%#x becomes %#x", k, s)
		}
	}
}

func TestResponsesOfTooMuch(t *testing.T) {
	for _, tc := range []struct {
		tooMuch
		packets, last int
	}{{tooMuch{8, []int{16}}, 1, 16}, {tooMuch{1028, []int{rdmaMTU, 12}}, 2, 12}} {
		got := tc.responses(5)
		if len(got) != tc.packets || len(got[len(got)-1].Payload) != tc.last {
			t.Errorf("%v: %v", tc.tooMuch, got)
		}
		cut := cutLast(got, 4)
		if n := len(cut[len(cut)-1].Payload); n != tc.last-4 {
			t.Errorf("%v cut by 4 ends with %d bytes", tc.tooMuch, n)
		}
	}
}
