package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// What can be changed about a port while the world runs, besides its carrier.

// SetImpair replaces what happens by chance to what the port sends (up) and to
// what it is to receive (down), from now on. What an impairment has delayed
// already still comes when it was to; exact events and counters go on.
func (p *Port) SetImpair(up, down []impair.Spec) error {
	for _, d := range []struct {
		im    **impairment
		name  string
		specs []impair.Spec
		next  Handler
	}{
		{&p.impairUp, "up", up, (*forwarding)(p.net)},
		{&p.impairDown, "down", down, (*delivery)(p.net)},
	} {
		if err := p.net.setSpecs(d.im, p, d.name, d.specs, d.next); err != nil {
			return err
		}
	}
	p.net.w.Tracef("%s impairments replaced", p.cfg.Name)
	return nil
}

// setSpecs changes an impairment, or makes one where there is none.
func (n *Net) setSpecs(im **impairment, p *Port, dir string, specs []impair.Spec, next Handler) (err error) {
	if *im == nil {
		*im, err = n.newImpairment(p.cfg.Name, dir, impair.Config{Specs: specs}, next)
		(*im).at(p)
		return err
	}
	if err := (*im).pipe.SetSpecs(specs); err != nil {
		return &ImpairError{Port: p.cfg.Name, Direction: dir, Err: err}
	}
	return nil
}

// SetRate changes the bandwidth of the port's cable, both ways; 0 means without
// limit. What waits in a queue already leaves as it was to.
func (p *Port) SetRate(bps uint64) {
	p.cfg.Link.RateBps = bps
	p.up.pacer.SetRate(bps)
	p.down.pacer.SetRate(bps)
	p.net.w.Tracef("%s rate %d", p.cfg.Name, bps)
}

// Freeze has nobody look at the port until Thaw, as when the process that owns
// the socket is stopped: what arrives waits, as far as there is room, and
// nothing is taken to be sent. The streams of its StreamHost stand still too.
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
	for _, k := range []hook{p.readable, p.writable} {
		if k.h != nil {
			w.At(w.now, k.h, k.arg)
		}
	}
	if p.host != nil {
		p.host.thaw()
	}
}

// RemoveAddr takes an address from the port: what is sent to it from then on finds
// nobody. Streams that are open go on.
func (p *Port) RemoveAddr(a netip.Addr) error {
	a = plain(a)
	i := slices.Index(p.cfg.Addrs, a)
	if i < 0 || p.closed {
		return fmt.Errorf("port %s: remove address %v: it has %v", p.cfg.Name, a, p.cfg.Addrs)
	}
	delete(p.net.byAddr, a)
	p.setAddrs(slices.Concat(p.cfg.Addrs[:i], p.cfg.Addrs[i+1:]))
	p.net.w.Tracef("%s loses %v", p.cfg.Name, a)
	return nil
}

// AddAddr gives the port one more address, behind those that it has.
func (p *Port) AddAddr(a netip.Addr) error {
	a = plain(a)
	switch owner := p.net.byAddr[a]; {
	case p.closed:
		return p.errClosed("AddAddr")
	case !a.IsValid() || a.IsUnspecified() || isGroup(a):
		return fmt.Errorf("port %s: add address %v: no host can have it", p.cfg.Name, a)
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
