package nics

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects/verbcalls"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// hasVerbDefect reports whether devices of p, one of all providers, can have a defect
// of verbs: defects that imitate a driver are for the providers of that driver only.
func (p *Provider) hasVerbDefect(all []*Provider, name string) bool {
	owns := func(p *Provider) bool { return slices.Contains(p.driverDefects, name) }
	return owns(p) || !slices.ContainsFunc(all, owns)
}

// verbDefects returns the defects of verbs that devices of p, one of all providers, can
// have.
func (p *Provider) verbDefects(all []*Provider) (found []Defect) {
	for _, q := range verbcalls.AllDefects() {
		if p.hasVerbDefect(all, q.Name) {
			found = append(found, Defect{Name: q.Name, Imitates: q.Imitates, Does: q.Does})
		}
	}
	return found
}

// takeVerbDefects sets those of names that are defects of the provider's verbs, and
// returns the others.
func (p *Provider) takeVerbDefects(q *verbcalls.Defects, names []string) (others []string, err error) {
	for _, name := range names {
		if defectName(name) == verbcalls.CounterStuck {
			if err := p.checkCounter(name); err != nil {
				return nil, err
			}
		}
		if !p.hasVerbDefect(all(), name) || q.Set(name, true) != nil {
			others = append(others, name)
		}
	}
	return others, nil
}

// checkCounter returns an error if the counter of a CounterStuck defect does not
// exist.
func (p *Provider) checkCounter(spec string) error {
	_, counter, _ := strings.Cut(spec, "=")
	if counter == "" {
		return fmt.Errorf("defect %s needs the name of a counter, for example %s=%s", spec, verbcalls.CounterStuck, p.counters()[0].Name)
	}
	has := func(p *Provider) bool {
		return slices.ContainsFunc(p.counters(), func(c verbs.Counter) bool { return c.Name == counter })
	}
	if has(p) {
		return nil
	}
	foreign := &ForeignDefectError{Name: spec, Provider: p}
	for _, other := range All() {
		if has(other) {
			foreign.Of = append(foreign.Of, other.Name)
		}
	}
	if len(foreign.Of) == 0 {
		return fmt.Errorf("defect %s: no device has a counter %q", spec, counter)
	}
	return foreign
}

// counters returns the counters of a NIC of the provider.
func (p *Provider) counters() []verbs.Counter {
	w := sim.New(sim.Config{})
	defer w.Close()
	d, err := p.openSample(w)
	if err != nil {
		panic(fmt.Sprintf("nics: %s cannot be opened in an empty world: %v", p.Name, err))
	}
	all := d.Counters()
	_ = d.Close() // nothing was done with it
	return all
}

// openSample opens a single NIC in a simulation.
func (p *Provider) openSample(w *sim.World) (verbs.Context, error) {
	const rate = 1e9
	n, err := sim.NewNet(w, sim.NetConfig{})
	if err != nil {
		return nil, err
	}
	addr := netip.IPv6Loopback()
	port, err := n.Attach(sim.PortConfig{Name: "sample", Addrs: []netip.Addr{addr}, Link: sim.LinkConfig{RateBps: rate, Latency: time.Microsecond, MTU: 1500}})
	if err != nil {
		return nil, err
	}
	o, err := p.newOpener(p, Setup{})
	if err != nil {
		return nil, err
	}
	return o.InWorld(w, port, NICConfig{Name: "sample", Addr: addr, LineRateBps: rate})
}

// defectiveVerbs opens NICs with defects of their verbs.
type defectiveVerbs struct {
	Opener
	q verbcalls.Defects
}

// InWorld implements Opener.
func (o *defectiveVerbs) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	d, err := o.Opener.InWorld(w, port, at)
	if err != nil {
		return nil, err
	}
	return verbcalls.Device(d, o.q, func() time.Duration { return time.Duration(w.Now()) }), nil
}

// OnSockets implements Opener.
func (o *defectiveVerbs) OnSockets(at NICConfig) (verbs.Context, error) {
	d, err := o.Opener.OnSockets(at)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return verbcalls.Device(d, o.q, func() time.Duration { return time.Since(start) }), nil
}
