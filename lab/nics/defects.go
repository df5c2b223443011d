package nics

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/verbs"
)

// Defect describes a defect that a NIC can have.
type Defect struct {
	Name     string `json:"name"`
	Imitates string `json:"imitates,omitempty"`
	Does     string `json:"does"`
	// Mutant is true if it is built into the device, by package mutant. Only the conform
	// command can give it to a device.
	Mutant bool `json:"mutant,omitempty"`
	// Of are the providers that can have it.
	Of []string `json:"providers"`
}

// AllDefects lists the defects of all providers, each once: a name means the same for all of them.
func AllDefects() (all []Defect) {
	for _, p := range All() {
		for _, defect := range p.AllDefects() {
			i := slices.IndexFunc(all, func(listed Defect) bool { return listed.Name == defect.Name })
			if i < 0 {
				i = len(all)
				all = append(all, defect)
			}
			all[i].Of = append(all[i].Of, p.Name)
		}
	}
	return all
}

// defectName returns the name of a defect without its argument.
func defectName(name string) string {
	name, _, _ = strings.Cut(name, "=")
	return name
}

// fromTables returns the defects of tables of package defects. It leaves Of, the providers, empty.
func fromTables(tables ...[]defects.Info) (all []Defect) {
	for _, d := range slices.Concat(tables...) {
		all = append(all, Defect{Name: d.Name, Imitates: d.Imitates, Does: d.Does})
	}
	return all
}

// UnknownDefectError is returned for a defect that no provider has.
type UnknownDefectError struct{ Name string }

func (e *UnknownDefectError) Error() string {
	return fmt.Sprintf("no defect %q; 'fabrictest list defects' lists all", e.Name)
}

// ForeignDefectError is returned for a defect that only other providers have.
type ForeignDefectError struct {
	Name     string
	Provider *Provider
	Of       []string // names of the providers that have it
}

func (e *ForeignDefectError) Error() string {
	return fmt.Sprintf("%s NICs cannot have the defect %s; it is a defect of %s", e.Provider.Title, e.Name, strings.Join(e.Of, " and "))
}

// CheckDefect checks a defect as given by the user: NAME, NAME=NUMBER, or CounterStuck=COUNTER. A
// defect is a mutant (a change of the source code), a verb defect (which wraps verbs calls), or a
// setting of the protocol engine, which CheckDefect checks by making an opener of NICs. The error
// may be an *UnknownDefectError or a *ForeignDefectError.
func (p *Provider) CheckDefect(spec string) error {
	name := defectName(spec)
	d := p.findDefect(name)
	if d == nil {
		return unsupported(p, name)
	}
	if d.Mutant {
		if strings.Contains(spec, "=") {
			return fmt.Errorf("defect %s takes no number", spec)
		}
		return nil
	}
	engineDefects, err := p.setVerbDefects(new(defects.VerbDefects), []string{spec})
	if err != nil || len(engineDefects) == 0 { // invalid, or a verb defect
		return err
	}
	_, err = p.newOpener(p, Setup{Defects: []string{spec}})
	return err
}

// unsupported returns the error for the name of a defect that NICs of p cannot have.
func unsupported(p *Provider, name string) error {
	var of []string
	for _, other := range All() {
		if other.findDefect(name) != nil {
			of = append(of, other.Name)
		}
	}
	if of == nil {
		return &UnknownDefectError{Name: name}
	}
	return &ForeignDefectError{Name: name, Provider: p, Of: of}
}

// CheckDefect checks a defect as given by the user. It returns nil if NICs of any provider can have
// it. It tries the next provider only after an error that says that other providers have it.
func CheckDefect(spec string) (err error) {
	for _, p := range All() {
		if err = p.CheckDefect(spec); err == nil {
			return nil
		}
		var foreign *ForeignDefectError
		if !errors.As(err, &foreign) {
			return err
		}
	}
	return err
}

// IsMutant reports whether a defect is a change of the source code, which is built into the
// program, and not a setting of a NIC.
func IsMutant(name string) bool { return defects.FindMutant(name) != nil }

// AllDefects returns the defects that NICs of p can have: those that they can be given when they
// are opened, and mutants, which are changes of the source code. A mutant whose Imitates is "-"
// imitates no device. Parsing the mutants takes milliseconds: most processes do not need them.
func (p *Provider) AllDefects() []Defect { return slices.Concat(p.Defects, mutantsOf()[p.Name]) }

// mutantsOf has the mutants of each provider, by its name.
var mutantsOf = sync.OnceValue(func() map[string][]Defect {
	all := make(map[string][]Defect)
	for _, m := range defects.Mutants() {
		d := Defect{Name: m.Name, Imitates: strings.TrimPrefix(m.Imitates, "-"), Does: m.Does, Mutant: true}
		for _, provider := range m.Providers {
			all[provider] = append(all[provider], d)
		}
	}
	return all
})

// findDefect returns the defect of p with a name, given without an argument; nil if there is none.
func (p *Provider) findDefect(name string) *Defect {
	named := func(d Defect) bool { return defectName(d.Name) == name }
	for _, all := range [][]Defect{p.Defects, mutantsOf()[p.Name]} {
		if i := slices.IndexFunc(all, named); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

// CheckRuntimeDefect returns an error if NICs of p cannot have a defect, as given by the user, or
// it is a mutant: a change of the source code, which most commands do not support.
func (p *Provider) CheckRuntimeDefect(spec string) error {
	return rejectMutant(spec, p.CheckDefect(spec))
}

// CheckRuntimeDefect returns an error if no provider can have a defect, or it is a mutant.
func CheckRuntimeDefect(spec string) error { return rejectMutant(spec, CheckDefect(spec)) }

// rejectMutant returns err, the result of CheckDefect, or an error if the defect is a mutant: a
// change of the source code, which only 'fabrictest conform' supports.
func rejectMutant(spec string, err error) error {
	if err != nil || !IsMutant(spec) {
		return err
	}
	return errMutant(spec)
}

// errMutant returns the error for a mutant in a program that was not built with it.
func errMutant(name string) error {
	return fmt.Errorf("the defect %s is a change of the source code: only 'fabrictest conform' supports it", name)
}

// withoutMutants returns the defects that are no mutants (changes of the source code). A mutant
// must be the one that this program was built with and has selected; others are errors.
func withoutMutants(defects []string) (others []string, err error) {
	for _, name := range defects {
		switch {
		case !IsMutant(name):
			others = append(others, name)
		case mutant.Selected() != name:
			return nil, errMutant(name)
		}
	}
	return others, nil
}

// DefectFlagError converts an error of CheckDefect to a usage error of the flag --defect. For
// an unknown defect it suggests similar names.
func DefectFlagError(err error) error {
	var unknown *UnknownDefectError
	if errors.As(err, &unknown) {
		all := AllDefects()
		names := make([]string, 0, len(all))
		for _, d := range all {
			names = append(names, defectName(d.Name))
		}
		return cli.Errorf("--defect: no defect %q; %s", unknown.Name, cli.DidYouMean(unknown.Name, names, "fabrictest list defects"))
	}
	return cli.Errorf("--defect: %w", err)
}

// canHaveVerbDefect reports whether a verb defect, one of defects.VerbDefects, may be set for devices
// of p. A defect that imitates a kernel driver is for the provider with that driver only.
func (p *Provider) canHaveVerbDefect(providers []*Provider, name string) bool {
	inDriver := func(p *Provider) bool { return slices.Contains(p.Kernel.verbDefects, name) }
	return inDriver(p) || !slices.ContainsFunc(providers, inDriver)
}

// setVerbDefects sets each of the named defects that is a verb defect (which changes verbs calls)
// and that devices of p can have. It returns the other names, which may be of engine defects, and
// an error for a CounterStuck defect with a counter that devices of p do not have.
func (p *Provider) setVerbDefects(set *defects.VerbDefects, names []string) (others []string, err error) {
	for _, name := range names {
		if defectName(name) == defects.CounterStuck {
			if err := p.checkCounter(name); err != nil {
				return nil, err
			}
		}
		if p.canHaveVerbDefect(providers(), name) {
			if err := set.Set(name, true); err == nil {
				continue
			}
		}
		others = append(others, name) // not a verb defect of p
	}
	return others, nil
}

// checkCounter returns an error if the provider's NICs do not have the counter of a defect
// CounterStuck=COUNTER.
func (p *Provider) checkCounter(spec string) error {
	_, counter, _ := strings.Cut(spec, "=")
	if counter == "" {
		return fmt.Errorf("defect %s needs the name of a counter, for example %s=%s", spec, defects.CounterStuck, p.counters()[0].Name)
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

// counters returns the counters of a NIC of the provider. It opens such a NIC in an empty
// simulation.
func (p *Provider) counters() []verbs.Counter {
	w := sim.New(sim.Config{})
	defer w.Close()
	d, err := p.openSample(w)
	if err != nil {
		panic(fmt.Sprintf("nics: %s cannot be opened in an empty simulation: %v", p.Name, err))
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
	defects defects.VerbDefects
}

// InWorld implements Opener. It adds the verb defects, which change verbs calls, to the device.
func (o *defectiveVerbsOpener) InWorld(w *sim.World, port *sim.Port, nic NICConfig) (verbs.Context, error) {
	d, err := o.Opener.InWorld(w, port, nic)
	if err != nil {
		return nil, err
	}
	return defects.WrapDevice(d, o.defects, func() time.Duration { return time.Duration(w.Now()) }), nil
}

// OnSockets implements Opener. It adds the verb defects, which change verbs calls, to the device.
func (o *defectiveVerbsOpener) OnSockets(nic NICConfig) (verbs.Context, error) {
	d, err := o.Opener.OnSockets(nic)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return defects.WrapDevice(d, o.defects, func() time.Duration { return time.Since(start) }), nil
}
