package nics

import (
	"github.com/fabrictest/fabrictest/emu/flawed"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// verbNeeds are what a device must be able to do to have a quirk of its verbs;
// those that are not here every device can have.
var verbNeeds = map[string]verbs.Caps{
	"SRQUnchecked":  verbs.CapSRQ,
	"XRCTargetDies": verbs.CapXRC,
}

// verbQuirks are the quirks of the verbs of devices that can do so much.
func verbQuirks(caps verbs.Caps) (all []Quirk) {
	for _, q := range flawed.AllQuirks() {
		if caps.Has(verbNeeds[q.Name]) {
			all = append(all, Quirk{Name: q.Name, Defect: q.Defect, Does: q.Does})
		}
	}
	return all
}

// takeVerbQuirks switches on what of names are quirks of the provider's verbs, and
// returns the others.
func (p *Provider) takeVerbQuirks(q *flawed.Quirks, names []string) (others []string) {
	for _, name := range names {
		if !(p.Caps | p.ReliableCaps).Has(verbNeeds[name]) || q.Set(name, true) != nil {
			others = append(others, name)
		}
	}
	return others
}

// verbFlaws opens NICs whose verbs have flaws.
type verbFlaws struct {
	Opener
	q flawed.Quirks
}

// InWorld implements Opener.
func (o *verbFlaws) InWorld(w *sim.World, port *sim.Port, at Place) (verbs.Context, error) {
	d, err := o.Opener.InWorld(w, port, at)
	if err != nil {
		return nil, err
	}
	return flawed.Device(d, o.q), nil
}

// OnSockets implements Opener.
func (o *verbFlaws) OnSockets(at Place) (verbs.Context, error) {
	d, err := o.Opener.OnSockets(at)
	if err != nil {
		return nil, err
	}
	return flawed.Device(d, o.q), nil
}
