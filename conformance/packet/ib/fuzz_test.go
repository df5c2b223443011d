package ib

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// FuzzParse checks that no bytes cause a panic, that Build of a parsed packet returns the same
// bytes, and that the packet matches itself.
func FuzzParse(f *testing.F) {
	for _, c := range goldenPackets(f) {
		f.Add(c.Data)
	}
	reth := At(0x1000, 5, 64)
	for _, p := range []Packet{
		SendOnly(1, []byte("abcde")).OnXRC(7), Flush(1, 1, 0, reth), AtomicWrite(1, reth, make([]byte, 8)), SendOnly(1, nil).On(UC),
		Packet{Extensions: Extensions{RDETH: &RDETH{}}}.WithOpcode(RD.Op(OpReadRequest)), Op(0x18), WriteOnly(1, reth, nil).WithBody([]byte{1, 2}),
		SendOnly(1, nil).WithTrailer(make([]byte, 9)), SendOnly(1, nil).WithPadCnt(3),
		{Behind: []byte("xyz")},
		CM(1, LAP{}),
	} {
		f.Add(p.Or(path4).Build())
		f.Add(p.Or(path6).WithUDPChecksum().Build())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		_ = p.String()
		_ = p.Faults()
		_, _, _ = p.CM()
		if !whole(err) {
			return
		}
		if got := p.Build(); !bytes.Equal(got, b) {
			t.Fatalf("%v: built\n%x, from\n%x", p, got, b)
		}
		if d := p.Diff(p); d != nil {
			t.Fatalf("%v differs from itself: %v", p, d)
		}
		again, err := Parse(withoutComputed(p).Build())
		if !whole(err) {
			t.Fatalf("%v: rebuilt: %v", p, err)
		}
		if err := again.CheckICRC(); err != nil {
			t.Fatalf("%v: rebuilt: %v", p, err)
		}
	})
}

// whole reports whether Parse read the whole packet. An unknown opcode and bytes after the packet
// are errors, but the packet keeps all bytes.
func whole(err error) bool {
	return err == nil || errors.Is(err, ErrOpcode) || errors.Is(err, ErrBehind) && !errors.Is(err, packet.ErrShort) && !errors.Is(err, ErrPad)
}

// FuzzMessage checks that all fields of a CM message survive a round trip.
func FuzzMessage(f *testing.F) {
	for _, m := range []Message{goldenREQ, goldenREP, goldenSIDRREQ, goldenSIDRREP, REJ{}, MRA{}, DREQ{}} {
		f.Add(CM(1, m).Payload)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, m, err := Datagram(0, GSIQKey, GSIQPN, b).CM()
		if err != nil {
			return
		}
		again := CMWith(h, m)
		h2, m2, err := again.CM()
		if err != nil || *h2.TID != *h.TID {
			t.Fatalf("%+v decodes to %+v, %v", h, h2, err)
		}
		if d := DiffCM(m, m2); d != nil {
			t.Fatal(d)
		}
		if got := CMWith(h2, m2).Payload; !bytes.Equal(got, again.Payload) {
			t.Fatalf("%x decodes to %x", again.Payload, got)
		}
	})
}
