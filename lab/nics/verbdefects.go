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

// canHaveVerbDefect reports whether a defect of verbs may be set for devices of p. Defects that
// imitate a kernel driver are for the provider with that driver only, others for all.
func (p *Provider) canHaveVerbDefect(providers []*Provider, name string) bool {
	inDriver := func(p *Provider) bool { return slices.Contains(p.driverDefects, name) }
	return inDriver(p) || !slices.ContainsFunc(providers, inDriver)
}

// verbDefects returns the defects of verbs that devices of p can have. providers are all
// providers: p does not have the defects that imitate the driver of another.
func (p *Provider) verbDefects(providers []*Provider) []Defect {
	return slices.DeleteFunc(fromTables(verbcalls.AllDefects()), func(d Defect) bool { return !p.canHaveVerbDefect(providers, d.Name) })
}

// setVerbDefects sets the defects in names that are defects of the provider's verbs, and
// returns the others, which the engine may know.
func (p *Provider) setVerbDefects(set *verbcalls.Defects, names []string) (others []string, err error) {
	for _, name := range names {
		if defectName(name) == verbcalls.CounterStuck {
			if err := p.checkCounter(name); err != nil {
				return nil, err
			}
		}
		isVerbDefect := p.canHaveVerbDefect(providers(), name) && set.Set(name, true) == nil // Set fails for unknown names
		if !isVerbDefect {
			others = append(others, name)
		}
	}
	return others, nil
}

// checkCounter returns an error if the provider's NICs do not have the counter of a defect
// CounterStuck=COUNTER.
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

// counters returns the counters of a NIC of the provider, which it opens in a simulation.
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

// openSample opens a NIC with default settings, alone in a simulated network.
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

// defectiveVerbsOpener opens NICs with defects of their verbs.
type defectiveVerbsOpener struct {
	Opener
	q verbcalls.Defects
}

// InWorld implements Opener.
func (o *defectiveVerbsOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	d, err := o.Opener.InWorld(w, port, at)
	if err != nil {
		return nil, err
	}
	return verbcalls.Device(d, o.q, func() time.Duration { return time.Duration(w.Now()) }), nil
}

// OnSockets implements Opener.
func (o *defectiveVerbsOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	d, err := o.Opener.OnSockets(at)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return verbcalls.Device(d, o.q, func() time.Duration { return time.Since(start) }), nil
}
