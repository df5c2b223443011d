package engine

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// What is not for this NIC, or from nobody who could be answered, is counted and
// draws no answer.
func TestStrangersVanish(t *testing.T) {
	at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), wire.Port) }
	for name, edit := range map[string]func(d *link.Datagram){
		"to another":          func(d *link.Datagram) { d.Dst = at("10.9.9.9") },
		"from a group":        func(d *link.Datagram) { d.Src = at("239.1.2.3") },
		"from a group, IPv6":  func(d *link.Datagram) { d.Src = at("ff02::1") },
		"from everybody":      func(d *link.Datagram) { d.Src = at("255.255.255.255") },
		"everybody in IPv6":   func(d *link.Datagram) { d.Src = at("::ffff:255.255.255.255") },
		"from nowhere":        func(d *link.Datagram) { d.Src = at("0.0.0.0") },
		"from no address":     func(d *link.Datagram) { d.Src = netip.AddrPort{} },
		"from no port":        func(d *link.Datagram) { d.Src = netip.AddrPortFrom(d.Src.Addr(), 0) },
		"from a group, wrong": func(d *link.Datagram) { d.Src = at("239.1.2.3"); d.Payload[len(d.Payload)-1] ^= 1 },
	} {
		for _, reliable := range []bool{false, true} {
			w, a, b := pair(t, reliable)
			b.recv(1, 0, 100)
			w.see = func(d *link.Datagram, _ *wire.Packet) bool {
				edit(d)
				b.h.nic.Input(w.now, d)
				return true
			}
			a.send(b, 1, 10)
			w.output()
			b.got(0)
			if b.h.nic.Count.DropAddress != 1 || w.seen != 1 {
				t.Errorf("%s, reliable %v: %d dropped, %d packets", name, reliable, b.h.nic.Count.DropAddress, w.seen)
			}
		}
	}
}

// Neither service takes packets of the other.
func TestServicesDoNotMix(t *testing.T) {
	for _, reliable := range []bool{false, true} {
		w := newWorld(t)
		a, b := w.host().own(reliable), w.host().own(!reliable)
		b.recv(1, 0, 100)
		a.send(b, 1, 10)
		w.run(time.Millisecond)
		b.got(0)
		c := &b.h.nic.Count
		if dropped := c.DropService + c.DropQPN; dropped != 1 || reliable == (c.DropService == 1) {
			t.Errorf("reliable %v: %d of the other service, %d without a QP", reliable, c.DropService, c.DropQPN)
		}
		if told := b.h.nic.rd.Count.SentRefusals == 1; told != reliable {
			t.Errorf("reliable %v: refused %v", reliable, told)
		}
	}
}

// drops adds up all counters that say that nothing came of a packet.
func (n *NIC) drops() uint64 {
	c, r := &n.Count, &n.rd.Count
	return c.DropDown + c.DropAddress + c.DropCRC + c.DropMalformed + c.DropQPN + c.DropService + c.DropState + c.DropKey +
		c.DropNoReceive + c.DropSegment + c.DropRecord + c.ErrorsFound + c.ErrorsReceived + r.DropRepeated + r.DropBeyond +
		r.DropStore + r.DropUnknown + r.DropUnproved + r.DropAck + r.DropEmpty + r.DropChallenge + r.DropRefusal
}

// Any packet may come at any time. In a QP that does not receive, it is counted,
// and nothing else happens; one that does is as good as new after a reset.
func TestAnyPacketInAnyState(t *testing.T) {
	recorded := conversation(t)
	states := []verbs.QPState{verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateErr}
	for _, state := range states {
		for _, reliable := range []bool{false, true} {
			w, a, b := pair(t, reliable, isolated)
			b.recv(1, 0, 4000)
			b.state = state
			memory, receives := bytes.Clone(b.h.mem), b.mayReceive()
			for _, d := range recorded {
				d.Src, d.Dst = a.h.ah(b.h.addr).path.src, a.h.ah(b.h.addr).path.dst
				before := b.h.nic.drops()
				b.h.nic.Input(w.now, &d)
				if counted := b.h.nic.drops() - before; !receives && counted != 1 {
					t.Errorf("%v, reliable %v: packet %x counts %d times", state, reliable, d.Payload, counted)
				}
			}
			w.poll()
			if !receives && (len(b.done) > 0 || !bytes.Equal(memory, b.h.mem) || b.state != state) {
				t.Errorf("%v, reliable %v: %d completions, state %v, or memory was written", state, reliable, len(b.done), b.state)
			}
			w.run(time.Minute)
			for _, e := range []*end{a, b} {
				e.reset()
				e.ready()
				e.done = nil
			}
			b.recv(1, 0, 100)
			a.send(b, 1, 10)
			w.run(time.Second)
			a.ok(1)
			b.ok(1)
		}
	}
}

// conversation is the packets of both services in both directions: of all kinds,
// with keys that are right and QP numbers that both sides of a pair have.
func conversation(t *testing.T) (all []link.Datagram) {
	kinds := map[wire.Kind]bool{}
	for _, reliable := range []bool{false, true} {
		w, a, b := pair(t, reliable, isolated)
		w.see = func(d *link.Datagram, k *wire.Packet) bool {
			kinds[k.Kind] = true
			all = append(all, *d)
			return false
		}
		b.recv(1, 0, 1000)
		a.send(b, 1, 900)
		a.send(b, 1, 4000) // of several packets, and too long
		a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}})
		a.post(b, writeRecord(a, b, 3000, 1))
		w.run(time.Millisecond)
		b.reset() // what comes now is refused
		a.send(b, 2, 10)
		w.run(time.Millisecond)
	}
	if len(kinds) != 4 {
		t.Fatalf("kinds %v, want all four", kinds)
	}
	return all
}

// With its port down a NIC neither sends nor receives.
func TestPortDown(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 100)
	a.h.nic.SetPort(false)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	a.ok(1) // as on a cable that is not plugged in
	if w.seen != 0 || a.h.nic.Count.Sent != 0 {
		t.Errorf("%d packets left, %d counted", w.seen, a.h.nic.Count.Sent)
	}
	a.h.nic.SetPort(true)
	b.h.nic.SetPort(false)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	b.got(0)
	if b.h.nic.Count.DropDown != 1 {
		t.Errorf("%d dropped", b.h.nic.Count.DropDown)
	}
}

// Without its address a NIC neither sends nor receives, and says that it is gone. What
// is reliable goes on when the address is back.
func TestAddressGone(t *testing.T) {
	for _, reliable := range []bool{false, true} {
		w, a, b := pair(t, reliable)
		b.recv(1, 0, 100)
		b.recv(2, 0, 100)
		full := a.h.nic.Config().GIDs
		empty := []verbs.GIDEntry{{Index: 0}}
		a.send(b, 1, 10)
		a.h.nic.SetGIDs(empty)
		if e, ok := a.h.nic.NextEvent(); !ok || e.Type != verbs.EventGIDChange || e.Port != 1 {
			t.Errorf("event %+v, %v", e, ok)
		}
		w.run(time.Millisecond)
		if w.seen != 0 || a.h.nic.Count.Sent != 0 {
			t.Errorf("reliable %v: %d packets left, %d counted", reliable, w.seen, a.h.nic.Count.Sent)
		}
		must.Fail(t, "an address from nowhere", must.Err(a.h.nic.CreateAH(a.h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(b.h.addr)}}, 0)), verbs.ErrInvalid)
		a.h.nic.SetGIDs(full)
		if !reliable {
			a.ok(1) // lost
			a.send(b, 2, 10)
		}
		w.run(time.Second)
		b.got(1)
		a.ok(1)

		b.h.nic.SetGIDs(empty)
		before := b.h.nic.Count.DropAddress
		a.send(b, 3, 10)
		w.run(10 * time.Millisecond)
		if b.h.nic.Count.DropAddress == before {
			t.Errorf("reliable %v: nothing was dropped for want of an address", reliable)
		}
	}
}

// Whoever sends from ten thousand addresses that are not his fills no more than
// the tables for what is unfinished, and those empty themselves.
func TestFloodsLeaveNothingBehind(t *testing.T) {
	recorded := conversation(t)
	for _, reliable := range []bool{false, true} {
		w, a, b := pair(t, reliable, isolated)
		n := b.h.nic
		for i := range 10_000 {
			d := recorded[i%len(recorded)]
			d.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), uint16(1+i))
			d.Dst = a.h.ah(b.h.addr).path.dst
			n.Input(w.now, &d)
		}
		if n.rd.Peers() > 0 || len(n.messages.open) > n.cfg.Messages || len(n.records.open) > n.cfg.Records || n.errors.waiting.Len() > n.cfg.ErrorBurst {
			t.Errorf("reliable %v: %d peers, %d messages, %d records, %d error messages", reliable,
				n.rd.Peers(), len(n.messages.open), len(n.records.open), n.errors.waiting.Len())
		}
		w.output()
		if most := 256 + n.cfg.ErrorBurst; w.seen > most {
			t.Errorf("reliable %v: %d answers, want %d at most", reliable, w.seen, most)
		}
		w.run(time.Second)
		if len(n.messages.open)+len(n.records.open) > 0 || n.Deadline() != mono.Never {
			t.Errorf("reliable %v: %d messages, %d records, deadline %v a second later", reliable, len(n.messages.open), len(n.records.open), n.Deadline())
		}
		b.recv(1, 0, 100)
		a.send(b, 1, 10)
		w.run(time.Second)
		a.ok(1)
		b.ok(1)
	}
}
