package netns

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// Fabric is a topology built from namespaces. It is safe for concurrent use.
type Fabric struct {
	plan *plan

	mu     sync.Mutex // guards the fields below, cable.down and device.qdisc
	closed bool
	routes map[string]map[netip.Prefix][]hop // of routed switches, as set in the kernel
}

// Topology returns the topology of the fabric.
func (f *Fabric) Topology() topology.Topology { return f.plan.t }

// Host returns the host of that name; nil if there is none.
func (f *Fabric) Host(name string) *Host {
	h, ok := f.plan.t.Host(name)
	if !ok {
		return nil
	}
	return &Host{h, f.plan.nodes[name].ns}
}

// Core returns the namespace of the bridges and of the ends of user-space
// cables, whose frames a program forwards; nil if there are none.
func (f *Fabric) Core() *NS {
	if f.plan.core == nil {
		return nil
	}
	return f.plan.core.ns
}

// UserCables lists the user-space cables, whose frames a program forwards between two interfaces
// (halves) in the core namespace. It omits the cables of the switches in UserSwitches.
func (f *Fabric) UserCables() []UserCable {
	var all []UserCable
	for _, c := range f.plan.cables {
		if c.halves[0] != nil {
			all = append(all, UserCable{Cable: c.Cable, A: c.halves[0].name, B: c.halves[1].name})
		}
	}
	return all
}

// UserSwitches lists the ports of the switches that user space must implement, by switch name.
func (f *Fabric) UserSwitches() map[string][]UserPort {
	all := make(map[string][]UserPort, len(f.plan.userPorts))
	for name, ports := range f.plan.userPorts {
		all[name] = slices.Clone(ports)
	}
	return all
}

// Close closes all namespaces and kills the processes in them.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var errs []error
	for _, s := range f.plan.namespaces {
		if s.ns != nil {
			errs = append(errs, s.ns.Close())
		}
	}
	return errors.Join(errs...)
}

// reroute updates the routes of routed switches for the cables that are up. It changes only routes
// that differ from f.routes, those in the kernel, and deletes a route that has no next hop left.
func (f *Fabric) reroute() error {
	want := f.plan.routerRoutes()
	for name, routes := range want {
		b := f.plan.nodes[name].ns.batch
		b.mu.Lock()
		for dst, hops := range routes {
			old := f.routes[name][dst]
			switch {
			case slices.Equal(old, hops):
			case len(hops) == 0:
				b.deleteRoute(dst)
			default:
				b.setRoute(dst, hops)
			}
		}
		err := b.flush()
		b.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	f.routes = maps.Clone(want)
	return nil
}

// Stats returns the kernel's counters of a port, and the packets that its queue (qdisc) dropped.
func (f *Fabric) Stats(port string) (s Stats, err error) {
	err = f.withCable(port, func(c *cable, side int) error {
		d := c.ends[side]
		link, err := d.namespace.ns.handle.LinkByIndex(d.index)
		if err != nil {
			return fmt.Errorf("statistics of %s: %w", port, err)
		}
		drops := d.droppedBefore // by qdiscs that were replaced
		if d.countsDrops {
			now, err := d.qdiscDrops()
			if err != nil {
				return fmt.Errorf("statistics of the queue of %s: %w", port, err)
			}
			drops += now
		}
		if k := link.Attrs().Statistics; k != nil {
			s = Stats{
				RxPackets: k.RxPackets, RxBytes: k.RxBytes, RxDropped: k.RxDropped,
				TxPackets: k.TxPackets, TxBytes: k.TxBytes, TxDropped: k.TxDropped,
			}
		}
		s.QueueDropped = drops
		return nil
	})
	return s, err
}

// withCable calls do, with f.mu held, for the cable of a port. side is the index of the
// port in cable.ends.
func (f *Fabric) withCable(port string, do func(c *cable, side int) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("port %s: the fabric is closed", port)
	}
	p, err := f.plan.t.FindPort(port)
	if err != nil {
		return err
	}
	for _, c := range f.plan.cables {
		switch {
		case c.A.Same(p):
			return do(c, 0)
		case c.B.Same(p):
			return do(c, 1)
		}
	}
	return fmt.Errorf("port %s: no cable is plugged in", port)
}
