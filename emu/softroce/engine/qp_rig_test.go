package engine

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Helpers of the tests of states, congestion and migration.

// frozen fails the test if change modifies q, including timers, queues and sequence
// numbers, or raises an event.
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
	p.climb(a, state)
	return p, a
}

// climb moves an RC QP step by step to state.
func (p *peer) climb(a verbs.QPAttr, state verbs.QPState) {
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

// otherwise returns an edit of the BTH.
func otherwise(change func(*wire.BTH)) edit { return func(k *wire.Packet) { change(&k.BTH) } }

var (
	migReq    = otherwise(func(b *wire.BTH) { b.MigReq = true })
	noMigReq  = otherwise(func(b *wire.BTH) { b.MigReq = false })
	unrelated = netip.MustParseAddr("192.0.2.77")
)

func toQPN(qpn uint32) edit  { return otherwise(func(b *wire.BTH) { b.DestQP = qpn }) }
func withPKey(k uint16) edit { return otherwise(func(b *wire.BTH) { b.PKey = k }) }

// delivered delivers a datagram after a change, with a new ICRC.
func (p *peer) delivered(d link.Datagram, change func(*link.Datagram)) {
	p.Helper()
	change(&d)
	p.seal(&d)
	p.deliver(d)
}

// redeliver delivers a datagram with other addresses.
func (p *peer) redeliver(d link.Datagram, src, dst netip.Addr) {
	p.Helper()
	p.delivered(d, func(d *link.Datagram) {
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
