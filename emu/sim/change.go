package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/impair"
)

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
