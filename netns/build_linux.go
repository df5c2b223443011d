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

// Build creates the namespaces, links and routes of a topology. When it returns, every cable has a
// carrier, all addresses are usable, and no frame has been sent.
//
// Each host and each routed switch has a namespace. The core namespace, if needed, holds the
// bridges of unrouted switches and the ends of user-space cables.
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

// build creates everything that is in the plan: namespaces, links, addresses and routes. Each step
// is done in all namespaces before the next, so that the kernel's waits overlap.
func (f *Fabric) build() error {
	p := f.plan
	for _, step := range []func() error{
		func() error { return forEachNamespace(p.namespaces, (*namespace).create) },
		p.createLinks,
		func() error { return forEachNamespace(p.namespaces, (*namespace).addAddresses) },
		func() error { return forEachNamespace(p.namespaces, (*namespace).waitAddresses) },
		func() error { return forEachNamespace(p.namespaces, (*namespace).setDevicesUp) },
		func() error { return forEachNamespace(p.namespaces, (*namespace).waitCarriers) },
		func() error { return forEachNamespace(p.namespaces, (*namespace).waitLocalRoutes) },
		func() error { return forEachNamespace(p.namespaces, (*namespace).addNeighbours) },
		f.reroute,
		f.applyLinkConfigs,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// forEachNamespace calls do for all namespaces, up to eight at once, because
// the kernel spends most of the time waiting for locks and RCU grace periods.
func forEachNamespace(spaces []*namespace, do func(*namespace) error) error {
	errs := make([]error, len(spaces))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, s := range spaces {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(s); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			}
		})
	}
	wg.Wait()
	return firstError(errs)
}

// firstError returns the first error and the number of others.
func firstError(errs []error) error {
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

// create creates the network namespace, with the sysctls of a host.
func (s *namespace) create() (err error) {
	s.ns, err = newNS(func() error { return writeSysctls(hostSysctls) })
	return err
}

// createLinks creates bridges and veth pairs, all down.
func (p *plan) createLinks() error {
	for _, s := range p.namespaces {
		for _, d := range s.devices {
			if d.bridge {
				s.ns.batch.addBridge(d)
			}
		}
	}
	for _, pair := range p.pairs {
		pair[0].namespace.ns.batch.addVeth(pair[0], pair[1])
	}
	for _, s := range p.namespaces {
		if err := s.ns.batch.flush(); err != nil {
			return err
		}
	}
	return nil
}

// addAddresses sets the master (bridge) and the addresses of each interface, disables link-local
// addresses, and sets the MTUs of bridges. In a routed switch it first enables forwarding.
func (s *namespace) addAddresses() error {
	if s.routed {
		if err := s.ns.Do(func() error { return writeSysctls(routerSysctls) }); err != nil {
			return err
		}
	}
	b := s.ns.batch
	for _, d := range s.devices {
		b.disableLinkLocal(d)
		if d.master != nil {
			b.setMaster(d)
		}
		for _, a := range d.addrs {
			b.addAddr(d, a)
		}
	}
	for _, d := range s.devices {
		if d.bridge {
			b.setMTU(d) // the default is the smallest MTU of its ports
		}
	}
	return b.flush()
}

// waitAddresses waits until IPv6 addresses are no longer tentative. The kernel
// finishes duplicate address detection asynchronously; the interfaces still
// have the flag NOARP (initialFlags), with which it sends no probes.
func (s *namespace) waitAddresses() error {
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

// setDevicesUp sets all interfaces but bridges up, and enables ARP on all. addNeighbours sets
// bridges up later, when their ports have carriers.
func (s *namespace) setDevicesUp() error {
	b := s.ns.batch
	for _, d := range s.devices {
		b.enableARP(d)
		if !d.bridge {
			b.setUp(d.index)
		}
	}
	return b.flush()
}

// waitCarriers waits until all links have a carrier. The kernel reports it some
// time after both ends are up and drops packets until then.
func (s *namespace) waitCarriers() error {
	exempt := map[int]bool{loopbackIndex: true} // by interface index; bridges come up later
	for _, d := range s.devices {
		exempt[d.index] = d.bridge
	}
	return poll("an interface has no carrier", func() (bool, error) {
		links, err := s.ns.handle.LinkList()
		if err != nil {
			return false, fmt.Errorf("list interfaces: %w", err)
		}
		for _, l := range links {
			if a := l.Attrs(); !exempt[a.Index] && a.OperState != netlink.OperUp {
				return false, nil
			}
		}
		return true, nil
	})
}

// waitLocalRoutes waits until the namespace receives packets to the addresses of its links.
func (s *namespace) waitLocalRoutes() error {
	for _, d := range s.devices {
		if d.bridge {
			continue // set up later, by addNeighbours
		}
		for _, a := range d.addrs {
			if err := WaitLocalRoute(s.ns.handle, a.Addr()); err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitLocalRoute waits until the kernel has a local route to one of its own addresses. The kernel
// adds the route of a new IPv6 address asynchronously, after the address is set and the link has a
// carrier, and drops packets to it until then.
func WaitLocalRoute(h *netlink.Handle, a netip.Addr) error {
	return poll(fmt.Sprintf("there is no local route to %v", a), func() (bool, error) {
		routes, err := h.RouteGet(a.AsSlice()) // fails while there is no route at all
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
	})
}

// addNeighbours sets bridges up and adds static neighbour, FDB and route entries. The ports must
// have carriers before: then the bridge has one at once, else it may take the kernel a second.
func (s *namespace) addNeighbours() error {
	b := s.ns.batch
	for _, d := range s.devices {
		if d.bridge {
			b.setUp(d.index)
		}
	}
	for _, d := range s.devices {
		for _, n := range d.neighbours {
			if n.device != d {
				b.addNeighbour(d, n.addr, n.device.mac)
			}
		}
		for _, mac := range d.fdb {
			b.addFDBEntry(d, mac)
		}
	}
	for dst, hops := range s.routes {
		b.setRoute(dst, hops)
	}
	if s.routed {
		b.addBlackholeRoutes()
	}
	return b.flush()
}

// poll calls done until it returns true or an error; it retries after ErrDumpInterrupted. After
// 30 s it returns an error that begins with problem.
func poll(problem string, done func() (bool, error)) error {
	const timeout = 30 * time.Second
	pause := 50 * time.Microsecond
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		ok, err := done()
		if ok || err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %v", problem, timeout)
		}
		pause = min(2*pause, 5*time.Millisecond)
	}
}
