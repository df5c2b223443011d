package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
)

// SwitchConfig configures a switch of a Net with several.
type SwitchConfig struct {
	// Name is unique in its Net. The default is "switch" and a number.
	Name string
	// Routed makes the switch a router: it decrements the hop limit of packets
	// to and from trunks, and does not forward broadcasts over trunks.
	Routed bool
}

// Switch is a store-and-forward switch of a Net with several. Packets take a
// shortest path. Among equal-cost next hops whose trunk is up, a hash of
// addresses and UDP ports selects one, so that a flow stays on one path (ECMP).
// There is no routing protocol: packets to a trunk that is down further along
// the path are dropped.
type Switch struct {
	net      *Net
	cfg      SwitchConfig
	id       int
	salt     uint64
	out      []*trunkDir   // outgoing trunk directions, in the order the trunks were added
	nextHops [][]*trunkDir // equal-cost next hops, by id of the destination switch
	// domain is the broadcast domain, computed with nextHops.
	domain int
}

// Name returns the switch's name.
func (s *Switch) Name() string { return s.cfg.Name }

// AddSwitch adds a switch to a Net without ports. Every port must then be
// attached to a switch; trunks connect the switches.
func (n *Net) AddSwitch(cfg SwitchConfig) (*Switch, error) {
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("switch%d", len(n.switches))
	}
	fail := func(why string) (*Switch, error) {
		return nil, fmt.Errorf("net %s: switch %s: %s", n.cfg.Name, cfg.Name, why)
	}
	switch {
	case n.cfg.Cable:
		return fail("the net is a cable")
	case len(n.switches) == 0 && len(n.ports) > 0:
		return fail("there are ports already, on the one switch that a net has without AddSwitch")
	}
	for _, s := range n.switches {
		if s.cfg.Name == cfg.Name {
			return fail("the name is taken")
		}
	}
	s := &Switch{net: n, cfg: cfg, id: len(n.switches)}
	for i := range len(cfg.Name) { // so that switches hash differently
		s.salt = mix(s.salt, uint64(cfg.Name[i])+1)
	}
	n.switches = append(n.switches, s)
	n.routesValid = false
	return s, nil
}

// checkSwitch checks PortConfig.Switch.
func (n *Net) checkSwitch(s *Switch) error {
	switch {
	case s == nil && len(n.switches) > 0:
		return errors.New("the net has switches of AddSwitch: set PortConfig.Switch to one of them")
	case s != nil && s.net != n:
		return fmt.Errorf("switch %s is on net %s", s.cfg.Name, s.net.cfg.Name)
	}
	return nil
}

// computeRoutes computes the shortest paths between all switches by breadth-first search.
func (n *Net) computeRoutes() {
	n.routesValid = true
	n.computeBroadcastDomains()
	for _, s := range n.switches {
		s.nextHops = make([][]*trunkDir, len(n.switches))
	}
	dist := make([]int, len(n.switches))
	for _, dst := range n.switches {
		for i := range dist {
			dist[i] = -1
		}
		dist[dst.id] = 0
		queue := []*Switch{dst}
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			for _, trunk := range s.out { // trunks are bidirectional: this direction leads from s to a neighbour
				if dist[trunk.to.id] < 0 {
					dist[trunk.to.id] = dist[s.id] + 1
					queue = append(queue, trunk.to)
				}
			}
		}
		for _, s := range n.switches {
			for _, trunk := range s.out {
				if dist[trunk.to.id] >= 0 && dist[trunk.to.id] == dist[s.id]-1 {
					s.nextHops[dst.id] = append(s.nextHops[dst.id], trunk)
				}
			}
		}
	}
}

// nextHop returns the next hop of a flow towards a switch; nil if there is none that is up. Among
// several of equal cost that are up, the hash of the flow selects one (ECMP).
func (s *Switch) nextHop(to *Switch, flow uint64) *trunkDir {
	if !s.net.routesValid {
		s.net.computeRoutes()
	}
	hops := s.nextHops[to.id]
	up := 0
	for _, trunk := range hops {
		if !trunk.carrier.isDown {
			up++
		}
	}
	if up == 0 {
		return nil
	}
	k, _ := bits.Mul64(mix(flow, s.salt), uint64(up)) // scales the hash to [0, up)
	for _, trunk := range hops {
		if trunk.carrier.isDown {
			continue
		}
		if k == 0 {
			return trunk
		}
		k--
	}
	return nil
}

// flowHash hashes both addresses and both ports, of UDP or TCP.
func flowHash(src, dst netip.AddrPort) uint64 {
	a, b, be := src.Addr().As16(), dst.Addr().As16(), binary.BigEndian
	h := mix(be.Uint64(a[:8]), be.Uint64(a[8:]))
	h = mix(h^be.Uint64(b[:8]), be.Uint64(b[8:]))
	return mix(h, uint64(src.Port())<<16|uint64(dst.Port()))
}

// mix hashes two numbers to one, with the multipliers of SplitMix64.
func mix(a, b uint64) uint64 {
	x := (a ^ bits.RotateLeft64(b, 32)) + b + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// walkPath calls f for every trunk on the path of a flow between two switches. It reports false if
// the path ends at a switch without a next hop that is up.
func (n *Net) walkPath(from, to *Switch, flow uint64, f func(*trunkDir)) bool {
	for from != to {
		trunk := from.nextHop(to, flow)
		if trunk == nil {
			return false
		}
		f(trunk)
		from = trunk.to
	}
	return true
}
