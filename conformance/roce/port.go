package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// port is an application on the device and a peer on its wire that talks RoCEv2, of
// whatever kind: it knows no connection.
type port struct {
	*rig.Rig
	// peer and device are where packets come from and go to if they do not say so.
	peer, device netip.Addr
	canary       *canary
	watch        *rcpeer.Watch
	// early are packets that came while something else was waited for.
	early []ib.Packet
	// cameAt is when the packet came that was read last.
	cameAt time.Duration
}

// onPort makes a case of a body that uses the bare wire.
func onPort(body func(*port)) func(*conformance.Bench) error {
	return rig.Straight(func(r *rig.Rig) { body(newPort(r)) })
}

func newPort(r *rig.Rig) *port {
	return &port{Rig: r, peer: r.Peers[0], device: r.Local[0], watch: rcpeer.NewWatch(r)}
}

// put sends a packet, with what it leaves open about its way filled in. It comes over
// a path that is not about to migrate, as some NICs demand.
func (p *port) put(pkt ib.Packet) {
	way := ib.Packet{}.Via(p.peer, p.device)
	if pkt.Opcode() != ib.OpCNP { // which has no such bit
		way = way.MigReq()
	}
	pkt = pkt.Or(way)
	p.watch.Sent(pkt)
	if err := p.Wire.Send(pkt.Build()); err != nil {
		rig.End(fmt.Errorf("send %v: %w", pkt, err))
	}
}

// next returns the next RoCE packet that the device sends, if it does in time.
// What every packet has to be like is looked at here, whatever a case is about.
func (p *port) next(timeout time.Duration) (ib.Packet, bool) {
	if len(p.early) > 0 {
		pkt := p.early[0]
		p.early = p.early[1:]
		return pkt, true
	}
	return p.nextOnWire(timeout)
}

func (p *port) nextOnWire(timeout time.Duration) (ib.Packet, bool) {
	until := p.Now() + timeout
	for {
		f, err := p.Wire.Recv(max(0, until-p.Now()))
		p.cameAt = f.At
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return ib.Packet{}, false
		case err != nil:
			rig.End(err)
		}
		pkt, err := ib.Parse(f.Packet)
		switch {
		case errors.Is(err, ib.ErrNotRoCE):
			continue
		case err != nil:
			p.Fail("a packet of RoCEv2", "%v (%v)", pkt, err)
		}
		p.watch.Sound(p.Rig, pkt)
		return pkt, true
	}
}

// expect ends the case unless the next packet is as wanted. It returns the packet.
func (p *port) expect(want ib.Packet) ib.Packet {
	got, ok := p.next(p.Patience())
	if !ok {
		p.Fail(want.String(), "nothing in %v", p.Patience())
	}
	p.same(want, got)
	return got
}

// same ends the case unless a packet is as wanted.
func (p *port) same(want, got ib.Packet) {
	if d := want.Diff(got); d != nil {
		p.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// take returns the next n packets; fewer end the case.
func (p *port) take(n int) []ib.Packet {
	all := make([]ib.Packet, n)
	for i := range all {
		var ok bool
		if all[i], ok = p.next(p.Patience()); !ok {
			p.Fail(fmt.Sprintf("%d packets", n), "%d", i)
		}
	}
	return all
}

// silence ends the case if the device sends anything. That it does not is proven by
// a canary: a connection of its own, of which a request is answered behind whatever
// the device was about to send. In virtual time quiet passes besides, so that what
// a timer would send is seen as well; keep it below the timers that may run.
func (p *port) silence(quiet time.Duration) {
	if pkt, ok := p.noise(quiet); ok {
		p.Fail("nothing is sent", "%v", pkt)
	}
}

// soon is a time in which everything happens that waits for no timer.
const soon = 100 * time.Microsecond

// noise returns the first packet that the device sends besides the canary's answer.
func (p *port) noise(quiet time.Duration) (ib.Packet, bool) {
	if p.canary == nil {
		p.canary = newCanary(p)
	}
	p.canary.sing()
	for {
		pkt, ok := p.next(p.Patience())
		switch {
		case !ok:
			p.Fail("a device that answers its other connections", "nothing in %v", p.Patience())
		case p.canary.answered(pkt):
			if !p.Virtual {
				return ib.Packet{}, false
			}
			return p.next(quiet)
		default:
			// The answer is still to come, and must not be taken for something else.
			p.skipCanary()
			return pkt, true
		}
	}
}

// skipCanary waits for the canary's answer and keeps what else comes.
func (p *port) skipCanary() {
	for {
		pkt, ok := p.nextOnWire(p.Patience())
		switch {
		case !ok:
			p.Fail("a device that answers its other connections", "nothing in %v", p.Patience())
		case p.canary.answered(pkt):
			return
		}
		p.early = append(p.early, pkt)
	}
}

// settle waits until the device has dealt with all that was put before.
func (p *port) settle() {
	if p.canary == nil {
		p.canary = newCanary(p)
	}
	p.canary.sing()
	p.skipCanary()
}
