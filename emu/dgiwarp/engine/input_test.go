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

// A packet to another address, or from an address without a host, is counted and gets no reply.
func TestPacketsWithInvalidAddressesAreDropped(t *testing.T) {
	at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), wire.Port) }
	for name, edit := range map[string]func(d *link.Datagram){
		"to another address":      func(d *link.Datagram) { d.Dst = at("10.9.9.9") },
		"from multicast":          func(d *link.Datagram) { d.Src = at("239.1.2.3") },
		"from IPv6 multicast":     func(d *link.Datagram) { d.Src = at("ff02::1") },
		"from broadcast":          func(d *link.Datagram) { d.Src = at("255.255.255.255") },
		"from mapped broadcast":   func(d *link.Datagram) { d.Src = at("::ffff:255.255.255.255") },
		"from unspecified":        func(d *link.Datagram) { d.Src = at("0.0.0.0") },
		"without source address":  func(d *link.Datagram) { d.Src = netip.AddrPort{} },
		"from port 0":             func(d *link.Datagram) { d.Src = netip.AddrPortFrom(d.Src.Addr(), 0) },
		"from multicast, bad CRC": func(d *link.Datagram) { d.Src = at("239.1.2.3"); d.Payload[len(d.Payload)-1] ^= 1 },
	} {
		for _, reliable := range []bool{false, true} {
			w, a, b := pair(t, reliable)
			b.recv(1, 0, 100)
			w.intercept = func(d *link.Datagram, _ *wire.Packet) bool {
				edit(d)
				b.h.nic.Input(w.now, d)
				return true
			}
			a.send(b, 1, 10)
			w.output()
			b.expectCompletions(0)
			if b.h.nic.Count.DropAddress != 1 || w.sent != 1 {
				t.Errorf("%s, reliable %v: %d dropped, %d packets", name, reliable, b.h.nic.Count.DropAddress, w.sent)
			}
		}
	}
}

func TestPacketsOfOtherServiceAreDropped(t *testing.T) {
	for _, reliable := range []bool{false, true} {
		w := newNetwork(t)
		a, b := w.host().newQP(reliable), w.host().newQP(!reliable)
		b.recv(1, 0, 100)
		a.send(b, 1, 10)
		w.run(time.Millisecond)
		b.expectCompletions(0)
		c := &b.h.nic.Count
		if dropped := c.DropService + c.DropQPN; dropped != 1 || reliable == (c.DropService == 1) {
			t.Errorf("reliable %v: %d of the other service, %d without a QP", reliable, c.DropService, c.DropQPN)
		}
		if refused := b.h.nic.rd.Count.SentRefusals == 1; refused != reliable {
			t.Errorf("reliable %v: refused %v", reliable, refused)
		}
	}
}

// drops returns the sum of the counters of packets without effect.
func (n *NIC) drops() uint64 {
	c, r := &n.Count, &n.rd.Count
	return c.DropDown + c.DropAddress + c.DropCRC + c.DropMalformed + c.DropQPN + c.DropService + c.DropState + c.DropKey +
		c.DropNoReceive + c.DropSegment + c.DropRecord + c.ErrorsFound + c.ErrorsReceived + r.DropRepeated + r.DropBeyond +
		r.DropStore + r.DropUnknown + r.DropUnproved + r.DropAck + r.DropEmpty + r.DropChallenge + r.DropRefusal
}

// A QP in a state that does not receive only counts a packet. In any state, the QP works after a
// reset.
func TestAnyPacketInAnyQPState(t *testing.T) {
	recorded := recordPackets(t)
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
			for _, e := range []*testQP{a, b} {
				e.reset()
				e.toRTS()
				e.done = nil
			}
			b.recv(1, 0, 100)
			a.send(b, 1, 10)
			w.run(time.Second)
			a.expectSuccess(1)
			b.expectSuccess(1)
		}
	}
}

// recordPackets returns packets of all kinds, of both services in both directions, with valid keys
// and QP numbers.
func recordPackets(t *testing.T) (all []link.Datagram) {
	kinds := map[wire.Kind]bool{}
	for _, reliable := range []bool{false, true} {
		w, a, b := pair(t, reliable, isolated)
		w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
			kinds[k.Kind] = true
			all = append(all, *d)
			return false
		}
		b.recv(1, 0, 1000)
		a.send(b, 1, 900)
		a.send(b, 1, 4000) // several packets, and too long
		a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}})
		a.post(b, writeRecord(a, b, 3000, 1))
		w.run(time.Millisecond)
		b.reset() // it refuses the next packets
		a.send(b, 2, 10)
		w.run(time.Millisecond)
	}
	if len(kinds) != 4 {
		t.Fatalf("kinds %v, want all four", kinds)
	}
	return all
}

// With its port down a NIC neither sends nor receives.
func TestPortDownStopsTraffic(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 100)
	a.h.nic.SetPort(false)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	a.expectSuccess(1) // as with an unplugged cable
	if w.sent != 0 || a.h.nic.Count.Sent != 0 {
		t.Errorf("%d packets sent, %d counted", w.sent, a.h.nic.Count.Sent)
	}
	a.h.nic.SetPort(true)
	b.h.nic.SetPort(false)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	b.expectCompletions(0)
	if b.h.nic.Count.DropDown != 1 {
		t.Errorf("%d dropped", b.h.nic.Count.DropDown)
	}
}

// A NIC without its address neither sends nor receives, and reports an event. A reliable QP
// continues when the address is back.
func TestRemovedAddressStopsTraffic(t *testing.T) {
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
		if w.sent != 0 || a.h.nic.Count.Sent != 0 {
			t.Errorf("reliable %v: %d packets sent, %d counted", reliable, w.sent, a.h.nic.Count.Sent)
		}
		must.Fail(t, "an address handle without a source address", must.Err(a.h.nic.CreateAH(a.h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(b.h.addr)}}, 0)), verbs.ErrInvalid)
		a.h.nic.SetGIDs(full)
		if !reliable {
			a.expectSuccess(1) // lost
			a.send(b, 2, 10)
		}
		w.run(time.Second)
		b.expectCompletions(1)
		a.expectSuccess(1)

		b.h.nic.SetGIDs(empty)
		before := b.h.nic.Count.DropAddress
		a.send(b, 3, 10)
		w.run(10 * time.Millisecond)
		if b.h.nic.Count.DropAddress == before {
			t.Errorf("reliable %v: no packet was dropped for its address", reliable)
		}
	}
}

// Packets from 10,000 spoofed addresses fill no more than the bounded tables of incomplete
// messages, which expire.
func TestSpoofedSourcesUseBoundedMemory(t *testing.T) {
	recorded := recordPackets(t)
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
		if most := 256 + n.cfg.ErrorBurst; w.sent > most {
			t.Errorf("reliable %v: %d replies, want %d at most", reliable, w.sent, most)
		}
		w.run(time.Second)
		if len(n.messages.open)+len(n.records.open) > 0 || n.Deadline() != mono.Never {
			t.Errorf("reliable %v: %d messages, %d records, deadline %v a second later", reliable, len(n.messages.open), len(n.records.open), n.Deadline())
		}
		b.recv(1, 0, 100)
		a.send(b, 1, 10)
		w.run(time.Second)
		a.expectSuccess(1)
		b.expectSuccess(1)
	}
}
