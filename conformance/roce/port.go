package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Port is an application on the device, with a scripted RoCEv2 peer at the other end of
// the link. It checks the rules that hold for every packet; see [PacketChecker]. It has no
// connection; see [Conn]. A port belongs to one case.
type Port struct {
	*rig.Rig
	// Peer and deviceAddr are the default addresses of packets.
	Peer, deviceAddr netip.Addr
	// Checker checks every packet that the device sends.
	Checker *PacketChecker
	// lastArrival is when the packet arrived that nextPacket returned last.
	lastArrival time.Duration
	// skipped are packets received while waiting for others.
	skipped  []Arrival
	syncConn *syncConn
	conns    uint32 // made by Connect
}

// OnPort makes the body of a case from a function that uses a port.
func OnPort(body func(*Port)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newPort(r)) })
}

func newPort(r *rig.Rig) *Port {
	return &Port{Rig: r, Peer: r.Peers[0], deviceAddr: r.Local[0], Checker: NewPacketChecker(r)}
}

// Arrival is a packet received from the device.
type Arrival struct {
	ib.Packet
	// At is the time of reception.
	At time.Duration
}

// SendPacket sends a packet, with addresses and MigReq filled in where they are unset, and
// returns the time just before.
func (p *Port) SendPacket(pkt ib.Packet) (at time.Duration) {
	defaults := ib.Packet{}.Via(p.Peer, p.deviceAddr)
	if pkt.Opcode() != ib.OpCNP { // a CNP has MigReq 0
		defaults = defaults.MigReq()
	}
	p.Checker.PacketSent(pkt)
	raw := pkt.Or(defaults).Build()
	at = p.Now()
	if err := p.Wire.Send(raw); err != nil {
		rig.Abort(fmt.Errorf("send %v: %w", pkt, err))
	}
	return at
}

// NextPacket returns the next packet from the device; false after the timeout.
func (p *Port) NextPacket(timeout time.Duration) (Arrival, bool) {
	if len(p.skipped) > 0 {
		a := p.skipped[0]
		p.skipped = p.skipped[1:]
		return a, true
	}
	return p.recvWire(timeout)
}

func (p *Port) recvWire(timeout time.Duration) (Arrival, bool) {
	for deadline := p.Now() + timeout; ; {
		f, err := p.Wire.Recv(max(0, deadline-p.Now()))
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return Arrival{}, false
		case err != nil:
			rig.Abort(err)
		}
		pkt, err := ib.Parse(f.Packet)
		if p.UDPSockets {
			pkt = pkt.Unseen()
		}
		switch {
		case errors.Is(err, ib.ErrNotRoCE):
		case err != nil:
			p.Fail("a packet of RoCEv2", "%v (%v)", pkt, err)
		default:
			p.Checker.Check(p.Rig, pkt)
			return Arrival{pkt, f.At}, true
		}
	}
}

// Skipped returns the packets received while waiting for others.
func (p *Port) Skipped() []Arrival { return p.skipped }

// DiscardSkipped discards the packets received while waiting for others.
func (p *Port) DiscardSkipped() { p.skipped = nil }

// NextMatching returns the next matching packet; false after the timeout. It keeps others.
func (p *Port) NextMatching(matches func(*Arrival) bool, timeout time.Duration) (Arrival, bool) {
	for i := range p.skipped {
		if a := p.skipped[i]; matches(&a) {
			p.skipped = slices.Delete(p.skipped, i, i+1)
			return a, true
		}
	}
	for deadline := p.Now() + timeout; ; {
		a, ok := p.recvWire(max(0, deadline-p.Now()))
		if !ok || matches(&a) {
			return a, ok
		}
		p.skipped = append(p.skipped, a)
	}
}

// nextPacket returns the next packet from the device; false after the timeout.
func (p *Port) nextPacket(timeout time.Duration) (ib.Packet, bool) {
	a, ok := p.NextPacket(timeout)
	p.lastArrival = a.At
	return a.Packet, ok
}

// expectPacket fails the case unless the next packet matches want. It returns the packet.
func (p *Port) expectPacket(want ib.Packet) ib.Packet {
	got, ok := p.nextPacket(p.ResponseTimeout())
	if !ok {
		p.Fail(want.String(), "nothing in %v", p.ResponseTimeout())
	}
	p.checkPacket(want, got)
	return got
}

// checkPacket fails the case unless a packet matches want. The case ends as unsupported
// if want has fields that the bench cannot see.
func (p *Port) checkPacket(want, got ib.Packet) {
	if unseen := want.About(got); len(unseen) > 0 {
		rig.Abort(fmt.Errorf("%w: sockets do not show %s", conformance.ErrBenchCannot, strings.Join(unseen, ", ")))
	}
	if d := want.Diff(got); d != nil {
		p.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// nextPackets returns the next n packets, or fails the case.
func (p *Port) nextPackets(n int) []ib.Packet {
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
// on another connection, or within quiet after that; see [Port.NextAfterSync].
func (p *Port) expectSilence(quiet time.Duration) {
	if pkt, ok := p.packetAfterSync(quiet); ok {
		p.Fail("nothing is sent", "%v", pkt)
	}
}

// packetAfterSync is [Port.NextAfterSync] for callers that need only the packet.
func (p *Port) packetAfterSync(quiet time.Duration) (ib.Packet, bool) {
	a, ok := p.NextAfterSync(quiet)
	p.lastArrival = a.At
	return a.Packet, ok
}

// drain synchronizes with the device and returns the packets received until then.
func (p *Port) drain() (all []ib.Packet) {
	p.Sync()
	for _, a := range p.Skipped() {
		all = append(all, a.Packet)
	}
	p.DiscardSkipped()
	return all
}
