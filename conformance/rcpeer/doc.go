// Package rcpeer plays the other end of RoCE by hand, and knows when each packet came. A
// [Port] is the wire of all its cases, with what a case needs to say that nothing was
// sent; a [Conn] is an RC connection for those that measure what a device does in time,
// or count what it does at all. It loses and marks packets itself, by leaving out what it
// would have sent, or by not looking at what came: there is no switch between it and the
// device.
//
// It judges nothing but what every packet has to be like: see [Watch]. A Conn keeps no
// state: it neither answers nor repeats anything by itself. All of it belongs to one case.
package rcpeer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Port is an application on the device, and a peer at the other end of its cable.
type Port struct {
	*rig.Rig
	// Peer is where packets come from that do not say so.
	Peer netip.Addr
	// Watch judges every packet that the device sends.
	Watch *Watch
	// early are packets that came while others were waited for.
	early  []Arrival
	canary *canary
	conns  uint32
}

// Arrival is a packet that the device sent.
type Arrival struct {
	ib.Packet
	// At is when it was seen.
	At time.Duration
}

// On makes the body of a case from one that uses a port.
func On(body func(*Port)) func(*conformance.Bench) error {
	return rig.Straight(func(r *rig.Rig) { body(New(r)) })
}

// New returns a port on the rig's bench.
func New(r *rig.Rig) *Port { return &Port{Rig: r, Peer: r.Peers[0], Watch: NewWatch(r)} }

// Put sends packets, with what they leave open about their way filled in, and returns
// when the last of them was about to be sent.
func (p *Port) Put(pkts ...ib.Packet) (at time.Duration) {
	for _, pkt := range pkts {
		way := ib.Packet{}.Via(p.Peer, p.Local[0])
		if pkt.Opcode() != ib.OpCNP { // which has no such bit
			way = way.MigReq()
		}
		p.Watch.Sent(pkt)
		octets := pkt.Or(way).Build()
		at = p.Now()
		if err := p.Wire.Send(octets); err != nil {
			rig.End(fmt.Errorf("send %v: %w", pkt, err))
		}
	}
	return at
}

// Next returns the next packet that the device sends, if it does in time.
func (p *Port) Next(timeout time.Duration) (Arrival, bool) {
	if len(p.early) > 0 {
		a := p.early[0]
		p.early = p.early[1:]
		return a, true
	}
	return p.onWire(timeout)
}

func (p *Port) onWire(timeout time.Duration) (Arrival, bool) {
	for until := p.Now() + timeout; ; {
		f, err := p.Wire.Recv(max(0, until-p.Now()))
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return Arrival{}, false
		case err != nil:
			rig.End(err)
		}
		pkt, err := ib.Parse(f.Packet)
		if p.Sockets {
			pkt = pkt.Unseen()
		}
		switch {
		case errors.Is(err, ib.ErrNotRoCE):
		case err != nil:
			p.Fail("a packet of RoCEv2", "%v (%v)", pkt, err)
		default:
			p.Watch.Sound(p.Rig, pkt)
			return Arrival{pkt, f.At}, true
		}
	}
}

// Early returns what came while other packets were waited for.
func (p *Port) Early() []Arrival { return p.early }

// Forget drops what came while other packets were waited for.
func (p *Port) Forget() { p.early = nil }

// NextOf returns the next packet that is wanted, if it comes in time. Others are kept.
func (p *Port) NextOf(wanted func(*Arrival) bool, timeout time.Duration) (Arrival, bool) {
	for i := range p.early {
		if a := p.early[i]; wanted(&a) {
			p.early = slices.Delete(p.early, i, i+1)
			return a, true
		}
	}
	for until := p.Now() + timeout; ; {
		a, ok := p.onWire(max(0, until-p.Now()))
		if !ok || wanted(&a) {
			return a, ok
		}
		p.early = append(p.early, a)
	}
}
