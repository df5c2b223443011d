package engine

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestRDMarksAreEchoed(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	marked, ect := false, true
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if k.Flags.Has(wire.FlagData) {
			ect = ect && d.ECNBits() == link.ECT0
			d.TClass |= link.CE
		}
		marked = marked || k.Flags.Has(wire.FlagMarked)
		return false
	}
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	a.ok(1)
	if !ect || !marked {
		t.Errorf("packets with data are ECN-capable %v, marks are echoed %v", ect, marked)
	}
}

// Packets of a flow look as the address handle says that was used last, but for
// the bits of congestion, which are the protocol's; and the receiver is told.
func TestRDFollowsItsAddressHandle(t *testing.T) {
	w, a, b := pair(t, true)
	var seen []uint8
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if k.Flags.Has(wire.FlagData) {
			seen = append(seen, d.TClass)
		}
		return false
	}
	for i, class := range []uint8{0x48 | link.CE, 0x20, 0x20} {
		b.recv(1, 0, 100)
		ah, err := a.h.nic.CreateAH(a.h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(b.h.addr), TrafficClass: class}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 4), UD: verbs.UD{QPN: verbs.QPN(b.num), QKey: testKey}}
		must.Do(t, a.PostSend(w.now, &wr, Refs{AH: ah}))
		seen = nil
		w.run(time.Millisecond)
		wc, want := b.ok(1)[0], class&^link.ECN|link.ECT0
		reply, err := verbs.InitAHFromWC(1, 0, &wc, b.bytes(recvAt, verbs.GRHLen))
		if err != nil || reply.GRH.TrafficClass != want {
			t.Errorf("message %d: the receiver sees class %#x, want %#x; %v", i, reply.GRH.TrafficClass, want, err)
		}
		for _, got := range seen {
			if got != want {
				t.Errorf("message %d: class %#x on the wire, want %#x", i, got, want)
			}
		}
	}
}
