package engine

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A CQ that overflows while requests fail stops the QP, in the middle of that: none
// of them is lost, and none is ended twice.
func TestRDOverflowWhileRequestsFail(t *testing.T) {
	w := newWorld(t)
	h, dead := w.host(), w.host().own(true)
	w.see = func(*link.Datagram, *wire.Packet) bool { return true }
	small := must.Get(h.nic.CreateCQ(1))(t)
	a := h.own(true, func(c *QPConfig) { c.SendCQ = small })
	for i := range 8 {
		a.send(dead, uint64(i), 10)
	}
	w.run(15 * time.Second)
	if a.State() != verbs.QPStateErr || len(a.free) != a.caps.MaxSendWR || h.nic.Count.Sends != 8 {
		t.Errorf("state %v, %d of %d places free, %d requests ended, want 8", a.State(), len(a.free), a.caps.MaxSendWR, h.nic.Count.Sends)
	}
}

// The same where reads fail because the next request finds that their answers will
// not come: that request too ends, once, and nothing leaves.
func TestRDOverflowWhenAFlowBeginsAnew(t *testing.T) {
	w := newWorld(t)
	h, b := w.host(), w.host().own(true)
	small := must.Get(h.nic.CreateCQ(1))(t)
	a := h.own(true, func(c *QPConfig) { c.SendCQ = small })
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Src.Addr() == b.h.addr && k.Kind == wire.KindRD { // acknowledgements arrive, answers do not
			k.Flags &^= wire.FlagData
			k.ULPDU = nil
			d.Payload = k.Append(nil)
		}
		return false
	}
	for i := range 3 {
		a.post(b, verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}})
	}
	w.run(time.Millisecond)
	if p := h.nic.rd.PeersOf(a.num)[0]; p.Waiting() > 0 || h.nic.Count.Sends > 0 {
		t.Fatalf("%d segments wait for acknowledgement, %d requests ended", p.Waiting(), h.nic.Count.Sends)
	}
	w.see = func(*link.Datagram, *wire.Packet) bool { return true }
	w.run(11 * time.Second)
	a.send(b, 3, 10)
	seen := h.nic.Count.Sent
	w.run(time.Second)
	if a.State() != verbs.QPStateErr || len(a.free) != a.caps.MaxSendWR || h.nic.Count.Sends != 4 || h.nic.Count.Sent != seen {
		t.Errorf("state %v, %d of %d places free, %d requests ended, want 4, %d packets left", a.State(), len(a.free), a.caps.MaxSendWR, h.nic.Count.Sends, h.nic.Count.Sent-seen)
	}
}
