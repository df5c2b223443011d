package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Up reports whether the port's link is up.
func (p *Port) Up() bool { return !p.isDown }

// SetDown takes the port's link down: queued packets and packets in flight are lost, and later
// packets are dropped. If a cable connects two ports, the link of the other port goes down too.
func (p *Port) SetDown() { p.setLinkDown(true) }

// SetUp brings the port's link up, and on a cable also that of the other port.
func (p *Port) SetUp() { p.setLinkDown(false) }

// setLinkDown takes the link of the port down or up, and with it that of the other port of a cable.
func (p *Port) setLinkDown(down bool) {
	if !p.net.cfg.Cable {
		p.setOwnLinkDown(down)
		return
	}
	for _, end := range p.net.ports {
		end.setOwnLinkDown(down)
	}
}

// setOwnLinkDown takes the link of the port down, which drops the packets in flight, or up.
func (p *Port) setOwnLinkDown(down bool) {
	if p.closed || !p.setIsDown(down, &p.uplink, &p.downlink) {
		return
	}
	w := p.net.w
	if down && p.writableTimer.Deadline() > w.now { // the transmit queue is empty now: Send may be called again
		p.writableTimer.Reset(w.now)
	}
	p.linkChange.schedule(w)
}

// Flap takes the link of a port down and up again, Times times, starting at From. A random
// time up to Jitter is added to each DownFor and UpFor.
type Flap struct {
	From           mono.Time
	DownFor, UpFor time.Duration
	Jitter         time.Duration
	Times          int
}

// Flap schedules the times at which the link goes down and up again, beginning at f.From. The link
// is down for f.DownFor and up for f.UpFor, each prolonged by a random time of up to f.Jitter.
func (p *Port) Flap(f Flap) {
	// Another name of the generator would change the times of all seeds.
	w, rng := p.net.w, p.net.w.Rand(p.net.randName(p.cfg.Name, "flap0"))
	at := f.From
	for range f.Times {
		w.AtFunc(at, p.SetDown)
		at = at.Add(f.DownFor + randBelow(rng, f.Jitter+1))
		w.AtFunc(at, p.SetUp)
		at = at.Add(f.UpFor + randBelow(rng, f.Jitter+1))
	}
}

// Partition divides the network: ports of different groups cannot reach each other. Ports in none
// of the groups form another group. It replaces any earlier partition.
func (n *Net) Partition(groups ...[]*Port) {
	for _, p := range n.ports {
		p.partition = 0
	}
	for i, g := range groups {
		for _, p := range g {
			p.partition = i + 1
		}
	}
	n.partitioned = true
	n.w.Tracef("%s partition into %d groups", n.cfg.Name, len(groups))
}

// Heal undoes Partition. Links that are down stay down.
func (n *Net) Heal() {
	n.partitioned = false
	n.w.Tracef("%s heal", n.cfg.Name)
}

// reachable reports whether no partition separates two ports.
func (n *Net) reachable(from, to *Port) bool {
	return !n.partitioned || from.partition == to.partition
}

// Changes to a port of a running world, besides its carrier.

// SetImpair replaces the random impairments of packets that the port sends (up) and receives
// (down). Packets already delayed keep their delay; impair.Events, which name exact packets, and
// counters are kept.
func (p *Port) SetImpair(up, down []impair.Spec) error {
	if err := errors.Join(p.uplink.setSpecs(up), p.downlink.setSpecs(down)); err != nil {
		return err
	}
	p.net.w.Tracef("%s impairments replaced", p.cfg.Name)
	return nil
}

// Freeze suspends the port and the streams of its StreamHost until Thaw, as when the process that
// owns the sockets is stopped: the receive queue fills, and Send and Recv do nothing.
func (p *Port) Freeze() {
	p.frozen = true
	p.net.w.Tracef("%s frozen", p.cfg.Name)
}

// Thaw undoes Freeze. The port and its streams then report as readable and writable, because their
// events may have been missed.
func (p *Port) Thaw() {
	wasFrozen := p.frozen
	p.frozen = false
	if !wasFrozen || p.closed {
		return
	}
	p.net.w.Tracef("%s thawed", p.cfg.Name)
	p.readable.schedule(p.net.w)
	p.writable.schedule(p.net.w)
	if h := p.host; h != nil {
		for i := range h.slots[1:] { // there is no stream 0
			h.markReady(link.StreamID(i+1), readyToRead|readyToWrite)
		}
		h.onReady.schedule(p.net.w)
	}
}

// RemoveAddr removes an address from the port. Later packets to it have no
// route. Open streams continue.
func (p *Port) RemoveAddr(a netip.Addr) error {
	a = canonical(a)
	i := slices.Index(p.cfg.Addrs, a)
	if i < 0 || p.closed {
		return fmt.Errorf("port %s: remove address %v: the port has %v", p.cfg.Name, a, p.cfg.Addrs)
	}
	delete(p.net.byAddr, a)
	p.net.addrChanges++
	p.setAddrs(slices.Concat(p.cfg.Addrs[:i], p.cfg.Addrs[i+1:]))
	p.net.w.Tracef("%s loses %v", p.cfg.Name, a)
	return nil
}

// AddAddr adds an address to the port, after the existing ones.
func (p *Port) AddAddr(a netip.Addr) error {
	a = canonical(a)
	switch owner := p.net.byAddr[a]; {
	case p.closed:
		return p.errClosed("AddAddr")
	case !a.IsValid() || a.IsUnspecified() || isGroup(a):
		return fmt.Errorf("port %s: add address %v: not a unicast address", p.cfg.Name, a)
	case owner != nil:
		return fmt.Errorf("port %s: add address %v: it is taken by port %s", p.cfg.Name, a, owner.cfg.Name)
	}
	p.net.byAddr[a] = p
	p.setAddrs(slices.Concat(p.cfg.Addrs, []netip.Addr{a}))
	p.net.w.Tracef("%s gets %v", p.cfg.Name, a)
	return nil
}

func (p *Port) setAddrs(all []netip.Addr) {
	p.cfg.Addrs = all
	p.addrChange.schedule(p.net.w)
}
