package roce

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// port is an application on the device and a peer on its wire that talks RoCEv2, of
// whatever kind: it knows no connection. What it says besides is what cases need that
// are told in packets and not in times; the wire is [rcpeer.Port]'s, and with it what is
// looked at in every packet, whatever a case is about.
type port struct {
	*rcpeer.Port
	// peer and device are where packets come from and go to if they do not say so.
	peer, device netip.Addr
	// syncQP is set by the first synchronization.
	syncQP *syncQP
	// cameAt is when the packet came that was returned last.
	cameAt time.Duration
}

// syncQP is the queue pair of [rcpeer.Port.Sync].
type syncQP struct{ qp verbs.QP }

// onPort makes a case of a body that uses the bare wire.
func onPort(body func(*port)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newPort(r)) })
}

func newPort(r *rig.Rig) *port {
	return &port{Port: rcpeer.New(r), peer: r.Peers[0], device: r.Local[0]}
}

// put sends a packet, with what it leaves open about its way filled in.
func (p *port) put(pkt ib.Packet) { p.Send(pkt.Or(ib.Packet{}.Via(p.peer, p.device))) }

// next returns the next RoCE packet that the device sends, if it does in time.
func (p *port) next(timeout time.Duration) (ib.Packet, bool) {
	a, ok := p.NextPacket(timeout)
	p.cameAt = a.At
	return a.Packet, ok
}

// expect ends the case unless the next packet is as wanted. It returns the packet.
func (p *port) expect(want ib.Packet) ib.Packet {
	got, ok := p.next(p.ResponseTimeout())
	if !ok {
		p.Fail(want.String(), "nothing in %v", p.ResponseTimeout())
	}
	p.same(want, got)
	return got
}

// same ends the case unless a packet is as wanted.
func (p *port) same(want, got ib.Packet) {
	if unseen := want.About(got); len(unseen) > 0 {
		rig.Abort(fmt.Errorf("%w: sockets do not show %s", conformance.ErrBenchCannot, strings.Join(unseen, ", ")))
	}
	if d := want.Diff(got); d != nil {
		p.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// take returns the next n packets; fewer end the case.
func (p *port) take(n int) []ib.Packet {
	all := make([]ib.Packet, n)
	for i := range all {
		var ok bool
		if all[i], ok = p.next(p.ResponseTimeout()); !ok {
			p.Fail(fmt.Sprintf("%d packets", n), "%d", i)
		}
	}
	return all
}

// silence ends the case if the device sends anything. That it does not is proven by
// a syncQP: a connection of its own, of which a request is answered behind whatever
// the device was about to send; and by the time that passes then, of which
// [rcpeer.Port.NextAfterSync] tells.
func (p *port) silence(quiet time.Duration) {
	if pkt, ok := p.noise(quiet); ok {
		p.Fail("nothing is sent", "%v", pkt)
	}
}

// soon is a time in which everything happens that waits for no timer.
const soon = 100 * time.Microsecond

// noise returns the first packet that the device sends besides the reply of the
// synchronization queue pair.
func (p *port) noise(quiet time.Duration) (ib.Packet, bool) {
	a, ok := p.NextAfterSync(quiet)
	p.cameAt, p.syncQP = a.At, &syncQP{p.SyncQP()}
	return a.Packet, ok
}

// settle waits until the device has dealt with all that was put before.
func (p *port) settle() {
	p.Sync()
	p.syncQP = &syncQP{p.SyncQP()}
}

// drained waits until the device has dealt with all that was put before, and returns
// what else it has sent by then.
func (p *port) drained() (all []ib.Packet) {
	p.settle()
	for _, a := range p.Skipped() {
		all = append(all, a.Packet)
	}
	p.DiscardSkipped()
	return all
}
