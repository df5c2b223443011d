package verbs_test

import (
	"testing"
	"unsafe"

	. "github.com/fabrictest/fabrictest/verbs"
)

func TestNextRKeyIncrementsOnlyTheLowByte(t *testing.T) {
	for _, tc := range []struct{ key, want RKey }{
		{0x12345600, 0x12345601},
		{0x123456fe, 0x123456ff},
		{0x123456ff, 0x12345600}, // wraps without changing the index
		{0xffffffff, 0xffffff00},
		{0, 1},
	} {
		if got := NextRKey(tc.key); got != tc.want {
			t.Errorf("NextRKey(%#x) = %#x, want %#x", tc.key, got, tc.want)
		}
	}
	k := RKey(0xabcdef42)
	for range 256 {
		k = NextRKey(k)
	}
	if k != 0xabcdef42 {
		t.Errorf("after 256 steps the key is %#x", k)
	}
}

type fakeMR struct {
	MR
	addr uint64
	lkey LKey
}

func (m fakeMR) Addr() uint64 { return m.addr }
func (m fakeMR) LKey() LKey   { return m.lkey }

func TestSGEOf(t *testing.T) {
	mr := fakeMR{addr: 1<<40 + 4096, lkey: 0x1234}
	if got, want := SGEOf(mr, 64, 128), (SGE{Addr: 1<<40 + 4160, Length: 128, LKey: 0x1234}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Work requests and completions are copied once per message, so their size affects
// the message rate. SGE must have the layout of struct ibv_sge.
func TestSizesOfHotStructs(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("sizes are pinned for 64-bit machines")
	}
	for _, tc := range []struct {
		name      string
		got, want uintptr
		why       string
	}{
		{"SGE", unsafe.Sizeof(SGE{}), 16, "struct ibv_sge has 16 bytes: verbs/ibv passes the array unchanged"},
		{"RecvWR", unsafe.Sizeof(RecvWR{}), 32, "two requests per cache line"},
		{"SendWR", unsafe.Sizeof(SendWR{}), 208, "put fields of a rare opcode into the struct of its operands"},
		{"WC", unsafe.Sizeof(WC{}), 48, "struct ibv_wc has 48 bytes; less than a cache line"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s has %d bytes, want %d: %s", tc.name, tc.got, tc.want, tc.why)
		}
	}
}
