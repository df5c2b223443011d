package sim

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// SwitchConfig describes a switch of a Net that has several.
type SwitchConfig struct {
	// Name is the switch's own in its Net. Empty means "switch" and a number.
	Name string
	// Routed has the switch take one from the hop limit of packets that it passes
	// on between its trunks and its ports, as a router does, and keep broadcasts to
	// its own ports.
	Routed bool
}

// Switch is one of several store-and-forward switches of a Net. Packets take a
// shortest way of trunks; where several are equally short, a hash of addresses
// and UDP ports chooses among those whose trunk is up here, so that a flow keeps
// its way and its order. There is no routing protocol: a trunk that is down
// further on is not known of, and what is sent that way is lost.
type Switch struct {
	net  *Net
	cfg  SwitchConfig
	id   int
	salt uint64
	out  []*way   // in the order the trunks were added
	next [][]*way // by id of the switch to get to: the first steps of its shortest ways
	// domain is that of broadcasts, known with the ways.
	domain int
}

// Name returns the switch's name.
func (s *Switch) Name() string { return s.cfg.Name }

// AddSwitch adds a switch. Every port of the Net must then be attached to one,
// and trunks join them.
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
	for i := range len(cfg.Name) { // so that not every switch makes the same choice
		s.salt = mix(s.salt, uint64(cfg.Name[i])+1)
	}
	n.switches = append(n.switches, s)
	n.routed = false
	return s, nil
}

// checkSwitch reports whether a port can be attached where it wants to be.
func (n *Net) checkSwitch(s *Switch) error {
	switch {
	case s == nil && len(n.switches) > 0:
		return errors.New("the net has several switches: PortConfig.Switch says which")
	case s != nil && s.net != n:
		return fmt.Errorf("switch %s is on net %s", s.cfg.Name, s.net.cfg.Name)
	}
	return nil
}

// findWays works out the shortest ways between all switches.
func (n *Net) findWays() {
	n.routed = true
	n.findDomains()
	for _, s := range n.switches {
		s.next = make([][]*way, len(n.switches))
	}
	far := make([]int, len(n.switches))
	for _, dst := range n.switches {
		for i := range far {
			far[i] = -1
		}
		far[dst.id] = 0
		queue := []*Switch{dst}
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			for _, w := range s.out { // a trunk goes both ways: w leads from s to a neighbour
				if far[w.to.id] < 0 {
					far[w.to.id] = far[s.id] + 1
					queue = append(queue, w.to)
				}
			}
		}
		for _, s := range n.switches {
			for _, w := range s.out {
				if far[w.to.id] >= 0 && far[w.to.id] == far[s.id]-1 {
					s.next[dst.id] = append(s.next[dst.id], w)
				}
			}
		}
	}
}

// choose returns the first step of a flow's way to another switch; nil if there
// is none, or all are down.
func (s *Switch) choose(to *Switch, flow uint64) *way {
	if !s.net.routed {
		s.net.findWays()
	}
	ways := s.next[to.id]
	up := 0
	for _, w := range ways {
		if !w.trunk.isDown {
			up++
		}
	}
	if up == 0 {
		return nil
	}
	k, _ := bits.Mul64(mix(flow, s.salt), uint64(up))
	for _, w := range ways {
		if w.trunk.isDown {
			continue
		}
		if k == 0 {
			return w
		}
		k--
	}
	return nil
}

// flowHash is what a way is chosen by: both addresses and both UDP ports.
func flowHash(src, dst netip.AddrPort) uint64 {
	a, b := src.Addr().As16(), dst.Addr().As16()
	h := mix(word(a[:8]), word(a[8:]))
	h = mix(h^word(b[:8]), word(b[8:]))
	return mix(h, uint64(src.Port())<<16|uint64(dst.Port()))
}

func word(b []byte) (x uint64) {
	for _, v := range b {
		x = x<<8 | uint64(v)
	}
	return x
}

// mix spreads two numbers over one, with the multipliers of SplitMix64.
func mix(a, b uint64) uint64 {
	x := (a ^ bits.RotateLeft64(b, 32)) + b + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// path calls f for every trunk that a flow crosses, and reports whether it gets
// there.
func (n *Net) path(from, to *Switch, flow uint64, f func(*way)) bool {
	for from != to {
		w := from.choose(to, flow)
		if w == nil {
			return false
		}
		f(w)
		from = w.to
	}
	return true
}

// newTrunkImpairment is that of a way.
func (n *Net) newTrunkImpairment(w *way, cfg impair.Config) (*impairment, error) {
	for i := range cfg.Events {
		if cfg.Events[i].Action.Kind == impair.Reorder {
			return nil, &ImpairError{Port: w.trunk.cfg.Name, Direction: w.dir, Err: fmt.Errorf("events[%d]: a trunk holds no packet back for others: reorder at a port", i)}
		}
	}
	im, err := n.newImpairment(w.trunk.cfg.Name, w.dir, cfg, (*pastTrunk)(n))
	if im != nil {
		im.way = w
	}
	return im, err
}
