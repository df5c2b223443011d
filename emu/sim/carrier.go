package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Up reports whether the port's link is up.
func (p *Port) Up() bool { return !p.isDown }

// SetDown takes the port's link down: queued packets and packets on the cable
// are lost, and later packets are dropped. Both ends of a cable go down.
func (p *Port) SetDown() { p.setCarrier(true) }

// SetUp brings the port's link up.
func (p *Port) SetUp() { p.setCarrier(false) }

func (p *Port) setCarrier(down bool) {
	if !p.net.cfg.Cable {
		p.setOwnCarrier(down)
		return
	}
	for _, end := range p.net.ports {
		end.setOwnCarrier(down)
	}
}

// setOwnCarrier takes the link of the port down, which drops the packets in flight, or up.
func (p *Port) setOwnCarrier(down bool) {
	if p.isDown == down || p.closed {
		return
	}
	p.isDown = down
	w := p.net.w
	if down {
		p.epoch++
		p.uplink.flush()
		p.downlink.flush()
		w.Tracef("%s link down", p.cfg.Name)
		if p.writableTimer.Deadline() > w.now { // flush has emptied the queue
			p.writableTimer.Reset(w.now)
		}
	} else {
		w.Tracef("%s link up", p.cfg.Name)
	}
	if p.linkChange.h != nil {
		w.At(w.now, p.linkChange.h, p.linkChange.arg)
	}
}

// Partition divides the network: ports of different groups cannot reach each
// other. Ports in none of the groups form another group. It replaces any
// earlier partition.
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

// Block drops all packets from one port to another, in this direction only.
func (n *Net) Block(from, to *Port) {
	n.blocked[[2]*Port{from, to}] = struct{}{}
	n.w.Tracef("%s block %s>%s", n.cfg.Name, from.cfg.Name, to.cfg.Name)
}

// Unblock undoes Block.
func (n *Net) Unblock(from, to *Port) {
	delete(n.blocked, [2]*Port{from, to})
	n.w.Tracef("%s unblock %s>%s", n.cfg.Name, from.cfg.Name, to.cfg.Name)
}

// Heal undoes Partition and every Block. Links that are down stay down.
func (n *Net) Heal() {
	n.partitioned = false
	clear(n.blocked)
	n.w.Tracef("%s heal", n.cfg.Name)
}

func (n *Net) reachable(from, to *Port) bool {
	if n.partitioned && from.partition != to.partition {
		return false
	}
	if len(n.blocked) == 0 {
		return true
	}
	_, blocked := n.blocked[[2]*Port{from, to}]
	return !blocked
}

// Changes to a port of a running world, besides its carrier.

// SetImpair replaces the random impairments of packets that the port sends (up)
// and receives (down). Packets already delayed keep their delay; exact events
// and counters are kept.
func (p *Port) SetImpair(up, down []impair.Spec) error {
	for _, d := range []struct {
		im    **impairment
		name  string
		specs []impair.Spec
		next  Handler
	}{
		{&p.impairUp, "up", up, (*afterUpImpairment)(p.net)},
		{&p.impairDown, "down", down, (*afterDownImpairment)(p.net)},
	} {
		if err := p.net.setImpairSpecs(d.im, p, d.name, d.specs, d.next); err != nil {
			return err
		}
	}
	p.net.w.Tracef("%s impairments replaced", p.cfg.Name)
	return nil
}

// setImpairSpecs changes an impairment, or creates it.
func (n *Net) setImpairSpecs(im **impairment, p *Port, dir string, specs []impair.Spec, next Handler) (err error) {
	if *im == nil {
		*im, err = n.newImpairment(p.cfg.Name, dir, impair.Config{Specs: specs}, next)
		(*im).setPort(p)
		return err
	}
	if err := (*im).pipe.SetSpecs(specs); err != nil {
		return &ImpairError{Port: p.cfg.Name, Direction: dir, Err: err}
	}
	return nil
}

// SetRate changes the bandwidth of the port's cable in both directions; 0 means
// unlimited. Packets already queued keep their departure times.
func (p *Port) SetRate(bps uint64) {
	p.cfg.Link.RateBps = bps
	p.uplink.pacer.SetRate(bps)
	p.downlink.pacer.SetRate(bps)
	p.net.w.Tracef("%s rate %d", p.cfg.Name, bps)
}

// Freeze suspends the port until Thaw, as when the process that owns the socket
// is stopped: the receive queue fills, and Send and Recv do nothing. The
// streams of its StreamHost are suspended too.
func (p *Port) Freeze() {
	p.frozen = true
	p.net.w.Tracef("%s frozen", p.cfg.Name)
}

// Thaw undoes Freeze.
func (p *Port) Thaw() {
	if !p.frozen || p.closed {
		p.frozen = false
		return
	}
	p.frozen = false
	w := p.net.w
	w.Tracef("%s thawed", p.cfg.Name)
	for _, k := range []callback{p.readable, p.writable} {
		if k.h != nil {
			w.At(w.now, k.h, k.arg)
		}
	}
	if p.host != nil {
		p.host.thaw()
	}
}

// RemoveAddr removes an address from the port. Later packets to it have no
// route. Open streams continue.
func (p *Port) RemoveAddr(a netip.Addr) error {
	a = canonical(a)
	i := slices.Index(p.cfg.Addrs, a)
	if i < 0 || p.closed {
		return fmt.Errorf("port %s: remove address %v: it has %v", p.cfg.Name, a, p.cfg.Addrs)
	}
	delete(p.net.byAddr, a)
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
	if k := p.addrChange; k.h != nil {
		p.net.w.At(p.net.w.now, k.h, k.arg)
	}
}
