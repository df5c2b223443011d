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
)

// port is an application on the device, with a scripted RoCEv2 peer at the other end of
// the link. It adds checks of single packets to [rcpeer.Port]. It has no connection; see
// [conn].
type port struct {
	*rcpeer.Port
	// peerAddr and deviceAddr are the default addresses of packets.
	peerAddr, deviceAddr netip.Addr
	// lastArrival is when the packet arrived that was returned last.
	lastArrival time.Duration
}

// onPort makes the body of a case from a function that uses a port.
func onPort(body func(*port)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newPort(r)) })
}

func newPort(r *rig.Rig) *port {
	return &port{Port: rcpeer.New(r), peerAddr: r.Peers[0], deviceAddr: r.Local[0]}
}

// sendPacket sends a packet, with the default addresses where it has none.
func (p *port) sendPacket(pkt ib.Packet) {
	p.Send(pkt.Or(ib.Packet{}.Via(p.peerAddr, p.deviceAddr)))
}

// nextPacket returns the next packet from the device; false after the timeout.
func (p *port) nextPacket(timeout time.Duration) (ib.Packet, bool) {
	a, ok := p.NextPacket(timeout)
	p.lastArrival = a.At
	return a.Packet, ok
}

// expectPacket fails the case unless the next packet matches want. It returns the packet.
func (p *port) expectPacket(want ib.Packet) ib.Packet {
	got, ok := p.nextPacket(p.ResponseTimeout())
	if !ok {
		p.Fail(want.String(), "nothing in %v", p.ResponseTimeout())
	}
	p.checkPacket(want, got)
	return got
}

// checkPacket fails the case unless a packet matches want. The case ends as unsupported
// if want has fields that the bench cannot see.
func (p *port) checkPacket(want, got ib.Packet) {
	if unseen := want.About(got); len(unseen) > 0 {
		rig.Abort(fmt.Errorf("%w: sockets do not show %s", conformance.ErrBenchCannot, strings.Join(unseen, ", ")))
	}
	if d := want.Diff(got); d != nil {
		p.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// nextPackets returns the next n packets, or fails the case.
func (p *port) nextPackets(n int) []ib.Packet {
	all := make([]ib.Packet, n)
	for i := range all {
		var ok bool
		if all[i], ok = p.nextPacket(p.ResponseTimeout()); !ok {
			p.Fail(fmt.Sprintf("%d packets", n), "%d", i)
		}
	}
	return all
}

const (
	// silencePeriod is how long the device must be silent where no timer runs.
	silencePeriod = time.Second
	// shortWait is long enough for everything that waits for no timer.
	shortWait = 100 * time.Microsecond
)

// expectSilence fails the case if the device sends a packet before it answers a request
// on another connection, or within quiet after that; see [rcpeer.Port.NextAfterSync].
func (p *port) expectSilence(quiet time.Duration) {
	if pkt, ok := p.packetAfterSync(quiet); ok {
		p.Fail("nothing is sent", "%v", pkt)
	}
}

// packetAfterSync is [rcpeer.Port.NextAfterSync] for callers that need only the packet.
func (p *port) packetAfterSync(quiet time.Duration) (ib.Packet, bool) {
	a, ok := p.NextAfterSync(quiet)
	p.lastArrival = a.At
	return a.Packet, ok
}

// drain synchronizes with the device and returns the packets received until then.
func (p *port) drain() (all []ib.Packet) {
	p.Sync()
	for _, a := range p.Skipped() {
		all = append(all, a.Packet)
	}
	p.DiscardSkipped()
	return all
}
