package engine

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Helpers of the tests of states, congestion and migration.

// expectUnchanged fails the test if change modifies q, including timers, queues and sequence
// numbers, or raises an event.
func expectUnchanged(t *testing.T, q *QP, change func()) {
	t.Helper()
	before, observer, events := *q, q.nic.Observer, 0
	q.nic.Observer = func(nic.Event) { events++ }
	change()
	q.nic.Observer = observer
	differ(t, &before, q)
	if events != 0 {
		t.Errorf("%d events reported", events)
	}
}

// differ fails the test for each field in which two QPs differ.
func differ(t *testing.T, want, got *QP) {
	t.Helper()
	if reflect.DeepEqual(*want, *got) {
		return
	}
	w, g := reflect.ValueOf(want).Elem(), reflect.ValueOf(got).Elem()
	for i := range w.NumField() {
		if was, is := fmt.Sprintf("%+v", w.Field(i)), fmt.Sprintf("%+v", g.Field(i)); was != is {
			t.Errorf("%s was\n\t%.2000s\nand is\n\t%.2000s", w.Type().Field(i).Name, was, is)
		}
	}
}

// modify moves the QP to a state with the attributes that mask selects.
func (p *peer) modify(to verbs.QPState, a verbs.QPAttr, mask verbs.QPAttrMask) error {
	a.State = to
	return p.q.Modify(p.now, a, mask|verbs.QPAttrState)
}

// enter moves the QP to a state and expects success.
func (p *peer) enter(to verbs.QPState) {
	p.Helper()
	must.Do(p, p.modify(to, verbs.QPAttr{}, 0))
	p.state(to)
}

// unconnected returns a peer whose QP is in the given state before RTS, and the
// attributes to connect it.
func unconnected(t *testing.T, fl flavour, s setup, state verbs.QPState) (*peer, verbs.QPAttr) {
	t.Helper()
	p := newPeer(t, fl, s)
	p.enter(verbs.QPStateReset)
	a := connAttr(p.addr, peerQPN)
	a.PathMTU, a.RQPSN, a.SQPSN = verbs.MTUFor(fl.mtu), uint32(fl.rq), uint32(fl.sq)
	if s.attr != nil {
		s.attr(&a)
	}
	p.moveUpTo(a, state)
	return p, a
}

// moveUpTo moves an RC QP step by step to state.
func (p *peer) moveUpTo(a verbs.QPAttr, state verbs.QPState) {
	p.Helper()
	masks := map[verbs.QPState]verbs.QPAttrMask{
		verbs.QPStateInit: initMask | verbs.QPAttrAccessFlags, verbs.QPStateRTR: rcRTR, verbs.QPStateRTS: rcRTS,
	}
	for next := p.q.State() + 1; next <= state; next++ {
		must.Do(p, p.modify(next, a, masks[next]))
	}
}

// tryPost posts a send of 4 bytes and returns the error.
func (p *peer) tryPost(id uint64) error {
	return p.q.PostSend(p.now, &verbs.SendWR{
		WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.h.sge(sourceAt, 4)},
	}, Refs{})
}

// drain returns copies of the packets that the NIC sends now, unchecked.
func (p *peer) drain() []link.Datagram {
	var all []link.Datagram
	for {
		n := p.h.nic.Output(p.now, p.ds)
		for _, d := range p.ds[:n] {
			d.Payload = append([]byte(nil), d.Payload...)
			all = append(all, d)
		}
		if n < len(p.ds) {
			return all
		}
	}
}

// editBTH returns an edit of the BTH.
func editBTH(change func(*wire.BTH)) edit { return func(k *wire.Packet) { change(&k.BTH) } }

var (
	migReq    = editBTH(func(b *wire.BTH) { b.MigReq = true })
	noMigReq  = editBTH(func(b *wire.BTH) { b.MigReq = false })
	unrelated = netip.MustParseAddr("192.0.2.77")
)

func toQPN(qpn uint32) edit  { return editBTH(func(b *wire.BTH) { b.DestQP = qpn }) }
func withPKey(k uint16) edit { return editBTH(func(b *wire.BTH) { b.PKey = k }) }

// deliverEdited delivers a datagram after a change, with a new ICRC.
func (p *peer) deliverEdited(d link.Datagram, change func(*link.Datagram)) {
	p.Helper()
	change(&d)
	p.seal(&d)
	p.deliver(d)
}

// redeliver delivers a datagram with other addresses.
func (p *peer) redeliver(d link.Datagram, src, dst netip.Addr) {
	p.Helper()
	p.deliverEdited(d, func(d *link.Datagram) {
		d.Src = netip.AddrPortFrom(src, d.Src.Port())
		d.Dst = netip.AddrPortFrom(dst, d.Dst.Port())
	})
}

// asCNP turns a packet into a CNP for its destination QP.
func asCNP(k *wire.Packet) {
	k.BTH = wire.BTH{Opcode: wire.CNP, PKey: wire.DefaultPKey, BECN: true, DestQP: k.BTH.DestQP}
	k.Payload = make([]byte, wire.CNPPayloadLen)
}

// marked sets the CE mark.
func marked(d *link.Datagram) { d.TClass |= link.CE }

// async/1: The claimed receive reports the cause of a fatal NAK. Without one, an
// event of the matching type is raised.
func TestFatalNAKWithoutReceiveRaisesEvent(t *testing.T) {
	for _, tc := range []struct {
		name  string
		make  func(p *peer)
		nak   string
		event verbs.AsyncEventType
	}{
		{"wrong key", func(p *peer) { p.send(wire.OpWriteOnly, 0, p.at(0, 8), rkey(0xbad), data(8)) }, "NAK 0 access msn 0", verbs.EventQPAccessErr},
		{"read of a wrong key", func(p *peer) { p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(0xbad)) }, "NAK 0 access msn 0", verbs.EventQPAccessErr},
		{"out of opcode sequence", func(p *peer) { p.send(wire.OpSendMiddle, 0, data(p.mtu)) }, "NAK 0 invalid msn 0", verbs.EventQPReqErr},
		{"wrong length", func(p *peer) { p.send(wire.OpWriteFirst, 0, p.at(0, 4000), data(8)) }, "NAK 0 invalid msn 0", verbs.EventQPReqErr},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.recv(1, 8) // posted, but not claimed by a message
				tc.make(p)
				p.expect(tc.nak)
				p.state(verbs.QPStateErr)
				p.events(tc.event)
				p.wcs("1 WR_FLUSH_ERR")
				p.silence(time.Second)
			})
		})
	}
	each(t, setup{}, func(p *peer) {
		p.recv(1, 3*p.mtu)
		p.recv(2, 8)
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendMiddle, 1, data(8)) // too short for a middle packet
		p.expect("NAK 1 invalid msn 0")
		p.wcs("1 REM_INV_REQ_ERR", "2 WR_FLUSH_ERR")
		p.events()
	})
}

// async/3: A port raises one event for each change. While it is down, packets are
// lost; they are retransmitted later.
func TestPortChangeRaisesEvent(t *testing.T) {
	const T = 4096 << 14
	each(t, setup{}, func(p *peer) {
		p.h.nic.SetPort(true)
		p.events()
		p.h.nic.SetPort(false)
		p.h.nic.SetPort(false)
		if e, _ := p.h.nic.NextEvent(); e.Type != verbs.EventPortErr || e.Port != 1 {
			p.Errorf("event %+v", e)
		}
		p.events()
		if s := p.h.nic.Port().State; s != verbs.PortDown {
			p.Errorf("port is %v", s)
		}
		p.post(1, verbs.OpSend, 4)
		p.expect()
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.expect()
		p.drops("drop_dead 1")

		p.h.nic.SetPort(true)
		if e, _ := p.h.nic.NextEvent(); e.Type != verbs.EventPortActive || e.Port != 1 {
			p.Errorf("event %+v", e)
		}
		if s := p.h.nic.Port().State; s != verbs.PortActive {
			p.Errorf("port is %v", s)
		}
		p.expect()
		p.wait(T)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.wcs("1 SUCCESS SEND")
		if p.h.nic.Count.Sent != 1 {
			p.Errorf("%d packets counted as sent", p.h.nic.Count.Sent)
		}
	})
}

// async/4: Packets from and to a removed address are dropped. When the address
// returns, the connection continues.
func TestPacketsOfRemovedAddressAreDropped(t *testing.T) {
	const T = 4096 << 14
	each(t, setup{}, func(p *peer) {
		own := p.h.nic.Config().GIDs
		other := netip.MustParseAddr("fd00::99")
		if p.addr.Is4() {
			other = netip.MustParseAddr("10.0.0.99")
		}
		p.post(1, verbs.OpSend, 4)
		p.h.nic.SetGIDs(RoCEv2GIDs(other))
		p.events(verbs.EventGIDChange)
		p.expect()
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.silence(T / 2)
		p.drops("drop_address 1")
		p.expectMemoryUnchanged()
		p.redeliver(p.build(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq), p.addr, other)
		p.drops("drop_address 2") // not the address of the connection

		p.h.nic.SetGIDs(own)
		p.events(verbs.EventGIDChange)
		p.to(1 + T)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS SEND")
	})
}

// If the event queue is full, new events are dropped. Events of a destroyed object are removed.
func TestEventQueueIsLimited(t *testing.T) {
	p := newPeer(t, flavours[0], setup{nic: func(c *Config) { c.Limits.PendingEvents = 3 }})
	p.stop()
	for i := range 5 {
		p.h.nic.SetPort(i%2 == 1)
	}
	must.Do(t, p.h.nic.DestroyQP(p.q))
	p.events(verbs.EventPortErr, verbs.EventPortActive)
	p.h.nic.SetPort(true)
	p.events(verbs.EventPortActive)
}
