package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// Build makes namespaces, links and routes of a topology. When it returns, every
// cable carries packets, all addresses are usable, and no frame has been sent.
//
// The namespaces are: one for each host; one for each routed switch; and, where
// it is needed, the core, which holds the bridges that are unrouted switches and
// the ends of spliced cables.
func Build(t topology.Topology, opts Options) (*Fabric, error) {
	p, err := newPlan(t, opts)
	if err != nil {
		return nil, err
	}
	f := &Fabric{plan: p}
	if err := f.build(); err != nil {
		f.Close() // the first error counts
		return nil, fmt.Errorf("build a fabric of %d hosts: %w", len(t.Hosts), err)
	}
	return f, nil
}

func (f *Fabric) build() error {
	p := f.plan
	for _, step := range []func() error{
		func() error { return each(p.spaces, (*space).create) },
		p.connect,
		func() error { return each(p.spaces, (*space).address) },
		func() error { return each(p.spaces, (*space).settle) },
		func() error { return each(p.spaces, (*space).activate) },
		func() error { return each(p.spaces, (*space).awaitCarriers) },
		func() error { return each(p.spaces, (*space).awaitLocal) },
		func() error { return each(p.spaces, (*space).introduce) },
		f.reroute,
		f.limitRates,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// each does the same in all spaces, in several at once: much of the time goes to
// locks and grace periods of the kernel.
func each(spaces []*space, do func(*space) error) error {
	errs := make([]error, len(spaces))
	var wg sync.WaitGroup
	turn := make(chan struct{}, 8)
	for i, s := range spaces {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			if err := do(s); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			}
		})
	}
	wg.Wait()
	return firstOf(errs)
}

// firstOf keeps a fault that all hosts share from being reported by each.
func firstOf(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	default:
		return fmt.Errorf("%w (and %d more errors)", errs[0], len(errs)-1)
	}
}

func (s *space) create() (err error) {
	s.ns, err = newNS(func() error { return writeSysctls(hostSysctls) })
	return err
}

// connect makes bridges and veth pairs, all down.
func (p *plan) connect() error {
	for _, s := range p.spaces {
		for _, d := range s.devices {
			if d.bridge {
				s.ns.batch.addBridge(d)
			}
		}
	}
	for _, pair := range p.pairs {
		b := pair[0].space.ns.batch
		b.addVeth(pair[0], pair[1])
		if err := b.flushIfFull(); err != nil {
			return err
		}
	}
	for _, s := range p.spaces {
		if err := s.ns.batch.flush(); err != nil {
			return err
		}
	}
	return nil
}

// address gives interfaces their bridges and addresses.
func (s *space) address() error {
	if s.routed {
		if err := s.ns.Do(func() error { return writeSysctls(routerSysctls) }); err != nil {
			return err
		}
	}
	b := s.ns.batch
	for _, d := range s.devices {
		b.noLinkLocal(d)
		if d.master != nil {
			b.setMaster(d)
		}
		for _, a := range d.addrs {
			b.addAddr(d, a)
		}
		if err := b.flushIfFull(); err != nil {
			return err
		}
	}
	for _, d := range s.devices {
		if d.bridge {
			b.setMTU(d) // a bridge takes the least of its ports' unless it is told
		}
	}
	return b.flush()
}

// settle waits until the kernel has done with the new addresses of IPv6. It does
// so a moment later, and must find the interfaces as quietFlags has them.
func (s *space) settle() error {
	return poll("the addresses of IPv6 are still tentative", func() (bool, error) {
		addrs, err := s.ns.handle.AddrList(nil, netlink.FAMILY_V6)
		if err != nil {
			return false, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_DADFAILED != 0 {
				return false, fmt.Errorf("address %v is taken", a.IPNet)
			}
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

// activate sets all up but for bridges.
func (s *space) activate() error {
	b := s.ns.batch
	for _, d := range s.devices {
		b.answerARP(d)
		if !d.bridge {
			b.setUp(d.index)
		}
	}
	return b.flush()
}

// awaitCarriers returns when the links carry packets: the kernel says so a
// moment after both ends were set up, and drops silently until then.
func (s *space) awaitCarriers() error {
	bridges := map[int]bool{loopbackIndex: true}
	for _, d := range s.devices {
		bridges[d.index] = d.bridge
	}
	return poll("an interface has no carrier", func() (bool, error) {
		links, err := s.ns.handle.LinkList()
		if err != nil {
			return false, fmt.Errorf("list interfaces: %w", err)
		}
		for _, l := range links {
			if a := l.Attrs(); !bridges[a.Index] && a.OperState != netlink.OperUp {
				return false, nil
			}
		}
		return true, nil
	})
}

// awaitLocal returns when the space receives packets to the addresses of its links.
func (s *space) awaitLocal() error {
	for _, d := range s.devices {
		if d.bridge {
			continue // it is set up later
		}
		for _, a := range d.addrs {
			if err := WaitLocalRoute(s.ns.handle, a.Addr()); err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitLocalRoute returns when the kernel has a local route to one of its own addresses. It
// adds that route for a new IPv6 address from a work queue, some time after the address
// is set and the link has a carrier, and drops packets to the address until then.
func WaitLocalRoute(h *netlink.Handle, a netip.Addr) error {
	return poll(fmt.Sprintf("there is no local route to %v", a), func() (bool, error) {
		routes, err := h.RouteGet(a.AsSlice())
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
	})
}

// introduce sets bridges up and says who is where. A bridge that finds its ports
// with a carrier has one at once; otherwise it can take the kernel a second.
func (s *space) introduce() error {
	b := s.ns.batch
	for _, d := range s.devices {
		if d.bridge {
			b.setUp(d.index)
		}
	}
	for _, d := range s.devices {
		for _, n := range d.segment {
			if n.of == d {
				continue
			}
			b.addNeighbour(d, n.addr, n.of.mac)
			if err := b.flushIfFull(); err != nil {
				return err
			}
		}
		for _, mac := range d.behind {
			b.addForwarding(d, mac)
		}
	}
	for dst, hops := range s.routes {
		b.setRoute(dst, hops)
	}
	if s.routed {
		b.dropTheRest()
	}
	return b.flush()
}

// poll asks until it is told yes.
func poll(what string, ask func() (bool, error)) error {
	const patience = 30 * time.Second
	pause := 50 * time.Microsecond
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		ok, err := ask()
		if ok || err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %v", what, patience)
		}
		pause = min(2*pause, 5*time.Millisecond)
	}
}
