package engine

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What the tests of states, congestion and migration add to a peer.

// frozen fails the test if change changes anything at all about q, down to its
// timers, queues and sequence numbers, or reports an event.
func frozen(t *testing.T, q *QP, change func()) {
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

// differ fails the test for each field in which two QPs are not alike.
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

// modify asks for a state and the attributes that mask selects besides.
func (p *peer) modify(to verbs.QPState, a verbs.QPAttr, mask verbs.QPAttrMask) error {
	a.State = to
	return p.q.Modify(p.now, a, mask|verbs.QPAttrState)
}

// enter takes the QP to a state, which must work.
func (p *peer) enter(to verbs.QPState) {
	p.Helper()
	if err := p.modify(to, verbs.QPAttr{}, 0); err != nil {
		p.Fatal(err)
	}
	p.state(to)
}

// unconnected is a peer whose QP is still in the given state on the way to RTS.
// The attributes of its connection come with it.
func unconnected(t *testing.T, fl flavour, s setup, state verbs.QPState) (*peer, verbs.QPAttr) {
	t.Helper()
	p := newPeer(t, fl, s)
	p.enter(verbs.QPStateReset)
	a := connAttr(p.addr, peerQPN)
	a.PathMTU, a.RQPSN, a.SQPSN = verbs.MTUFor(fl.mtu), uint32(fl.rq), uint32(fl.sq)
	if s.attr != nil {
		s.attr(&a)
	}
	p.climb(a, state)
	return p, a
}

// climb takes an RC QP from where it is up to state.
func (p *peer) climb(a verbs.QPAttr, state verbs.QPState) {
	p.Helper()
	masks := map[verbs.QPState]verbs.QPAttrMask{
		verbs.QPStateInit: initMask | verbs.QPAttrAccessFlags, verbs.QPStateRTR: rcRTR, verbs.QPStateRTS: rcRTS,
	}
	for next := p.q.State() + 1; next <= state; next++ {
		if err := p.modify(next, a, masks[next]); err != nil {
			p.Fatal(err)
		}
	}
}

// tryPost posts a send of 4 bytes and returns what the NIC says to that.
func (p *peer) tryPost(id uint64) error {
	return p.q.PostSend(p.now, &verbs.SendWR{
		WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.h.sge(sourceAt, 4)},
	}, Refs{})
}

// drain returns copies of what the NIC has to send now, unjudged.
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

// otherwise changes a packet's BTH.
func otherwise(change func(*wire.BTH)) edit { return func(k *wire.Packet) { change(&k.BTH) } }

var (
	migReq    = otherwise(func(b *wire.BTH) { b.MigReq = true })
	noMigReq  = otherwise(func(b *wire.BTH) { b.MigReq = false })
	unrelated = netip.MustParseAddr("192.0.2.77")
)

func toQPN(qpn uint32) edit  { return otherwise(func(b *wire.BTH) { b.DestQP = qpn }) }
func withPKey(k uint16) edit { return otherwise(func(b *wire.BTH) { b.PKey = k }) }

// delivered hands a datagram to the NIC after changes to what ICRC leaves out
// or after which it is computed anew.
func (p *peer) delivered(d link.Datagram, change func(*link.Datagram)) {
	p.Helper()
	change(&d)
	p.seal(&d)
	p.deliver(d)
}

// redeliver hands a datagram to the NIC as one between other addresses.
func (p *peer) redeliver(d link.Datagram, src, dst netip.Addr) {
	p.Helper()
	p.delivered(d, func(d *link.Datagram) {
		d.Src = netip.AddrPortFrom(src, d.Src.Port())
		d.Dst = netip.AddrPortFrom(dst, d.Dst.Port())
	})
}

// asCNP makes a packet a congestion notification for the QP it was for.
func asCNP(k *wire.Packet) {
	k.BTH = wire.BTH{Opcode: wire.CNP, PKey: wire.DefaultPKey, BECN: true, DestQP: k.BTH.DestQP}
	k.Payload = make([]byte, wire.CNPPayloadLen)
}

// marked is what a congested switch does to a datagram.
func marked(d *link.Datagram) { d.TClass |= link.CE }
