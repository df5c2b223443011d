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

// Fabric is a topology in namespaces. Its methods may be called from many
// goroutines.
type Fabric struct {
	plan *plan

	mu     sync.Mutex // guards what follows, what is down, and queues
	closed bool
	routes map[string]map[netip.Prefix][]hop // as they are set
}

// Host is a host of a fabric.
type Host struct {
	topology.Host
	NS *NS
}

// Topology is what the fabric was built from.
func (f *Fabric) Topology() topology.Topology { return f.plan.t }

// Host finds a host by its name; nil if there is none.
func (f *Fabric) Host(name string) *Host {
	h, ok := f.plan.t.Host(name)
	if !ok {
		return nil
	}
	return &Host{h, f.plan.nodes[name].ns}
}

// Router is the namespace of a routed switch; nil if there is none of the name.
// Its ports are the interfaces port0, port1, ….
func (f *Fabric) Router(name string) *NS {
	if s := f.plan.nodes[name]; s != nil && s.routed {
		return s.ns
	}
	return nil
}

// Core is the namespace where spliced cables end, and bridges are; nil if the
// fabric has neither.
func (f *Fabric) Core() *NS {
	if f.plan.core == nil {
		return nil
	}
	return f.plan.core.ns
}

// UserCables lists the cables that were cut, in the topology's order, but for those
// of switches that user space must be.
func (f *Fabric) UserCables() []UserCable {
	var all []UserCable
	for _, c := range f.plan.cables {
		if c.halves[0] != nil {
			all = append(all, UserCable{Cable: c.Cable, A: c.halves[0].name, B: c.halves[1].name})
		}
	}
	return all
}

// UserSwitches lists the ports of the switches that user space must be, by the
// switch's name.
func (f *Fabric) UserSwitches() map[string][]UserPort {
	all := make(map[string][]UserPort, len(f.plan.user))
	for name, ports := range f.plan.user {
		all[name] = slices.Clone(ports)
	}
	return all
}

// Close lets go of the fabric and kills the processes that run in its hosts.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var errs []error
	for _, s := range f.plan.spaces {
		if s.ns != nil {
			errs = append(errs, s.ns.Close())
		}
	}
	return errors.Join(errs...)
}

// reroute sets the routes of routed switches to what the cables that are up
// allow.
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

// Stats are what the kernel counted at a port.
func (f *Fabric) Stats(port string) (Stats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, side, err := f.at(port)
	if err != nil {
		return Stats{}, err
	}
	d := c.ends[side]
	link, err := d.space.ns.handle.LinkByIndex(d.index)
	if err != nil {
		return Stats{}, fmt.Errorf("statistics of %s: %w", port, err)
	}
	var s Stats
	if k := link.Attrs().Statistics; k != nil {
		s = Stats{
			RxPackets: k.RxPackets, RxBytes: k.RxBytes, RxDropped: k.RxDropped,
			TxPackets: k.TxPackets, TxBytes: k.TxBytes, TxDropped: k.TxDropped,
		}
	}
	now, err := d.queueDrops()
	if err != nil {
		return Stats{}, fmt.Errorf("statistics of the queue of %s: %w", port, err)
	}
	s.QueueDropped = d.dropped + now
	return s, nil
}

// at finds the cable of a port, and which end of it the port is. The caller has
// locked the fabric.
func (f *Fabric) at(port string) (c *cable, side int, err error) {
	if f.closed {
		return nil, 0, fmt.Errorf("port %s: the fabric is closed", port)
	}
	p, err := f.plan.t.FindPort(port)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range f.plan.cables {
		switch {
		case c.A.Same(p):
			return c, 0, nil
		case c.B.Same(p):
			return c, 1, nil
		}
	}
	return nil, 0, fmt.Errorf("port %s: no cable is plugged in", port)
}
