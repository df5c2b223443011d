package wire

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// FuzzMAD checks that a parsed MAD encodes to the same bytes with reserved bits cleared, and that
// these parse to the same message.
func FuzzMAD(f *testing.F) {
	for i, k := range kinds {
		m := k.new()
		must.Get(m.Parse(pattern(byte(i))))(f)
		f.Add(m.Append(NewMADHeader(k.attr, uint64(i)).Append(nil)))
	}
	for _, g := range goldenMessages() {
		f.Add(golden(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h MADHeader
		rest, err := h.Parse(b)
		if err != nil {
			return
		}
		want := bytes.Clone(b[:MADHeaderLen])
		want[18], want[19] = 0, 0
		if got := h.Append(nil); !bytes.Equal(got, want) {
			t.Fatalf("header %x sent as %x", b[:MADHeaderLen], got)
		}
		if _, ok := h.Attr.Index(); !ok {
			return
		}
		k := kindOf(h.Attr)
		m, twin := k.new(), k.new()
		tail, err := m.Parse(rest)
		if err != nil {
			return
		}
		sent := m.Append(nil)
		if want := k.meaningful(rest[:MADBodyLen]); !bytes.Equal(sent, want) {
			t.Fatalf("%v: %x sent as %x, want %x", h.Attr, rest, sent, want)
		}
		if _, err := twin.Parse(append(sent, tail...)); err != nil || !equal(m, twin) {
			t.Fatalf("%v: %+v decodes to %+v, %v", h.Attr, m, twin, err)
		}
	})
}

// FuzzCMAHeader checks the same for the header of rdma_cm.
func FuzzCMAHeader(f *testing.F) {
	h := NewCMAHeader(guest12, guest11, 1)
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h CMAHeader
		rest, err := h.Parse(b)
		if err != nil {
			return
		}
		want := bytes.Clone(b)
		want[1] &= 0xF0
		if got := append(h.Append(nil), rest...); !bytes.Equal(got, want) {
			t.Fatalf("%x sent as %x", b, got)
		}
		if v := h.IPVersion; h.SrcAddr().IsValid() != (v == 4 || v == 6) {
			t.Fatalf("IP version %d: source %v", v, h.SrcAddr())
		}
	})
}
