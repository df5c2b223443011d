package nics

import (
	"maps"
	"slices"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// markerIWARP is soft-iWARP that requests MPA markers by default.
func markerIWARP() *Provider {
	p := softIWARP()
	p.Name, p.Title = "markeriwarp", "soft-iWARP with markers"
	p.Profiles, p.Kernel = nil, KernelDriver{}
	// A device with markers places nothing early.
	p.Defects = slices.DeleteFunc(p.Defects, func(d Defect) bool { return d.Name == "PlacesEarly" })
	p.newOpener = func(p *Provider, s Setup) (Opener, error) {
		options := Options{"markers": true}
		maps.Copy(options, s.Options)
		s.Options = options
		o, err := iwarpStack.newOpener(p, s)
		if err != nil {
			return nil, err
		}
		return &markerOpener{o, p.Name}, nil
	}
	return p
}

// markerOpener opens NICs of soft-iWARP under the name of another provider.
type markerOpener struct {
	*stackOpener[softiwarp.Config, iwarpOptions]
	provider string
}

// InWorld implements Opener.
func (o *markerOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	d, err := o.stackOpener.InWorld(w, port, at)
	if err != nil {
		return nil, err
	}
	return &markerDevice{d, o.provider}, nil
}

// OnSockets implements Opener.
func (o *markerOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	d, err := o.stackOpener.OnSockets(at)
	if err != nil {
		return nil, err
	}
	return &markerDevice{d, o.provider}, nil
}

// markerDevice is a device that reports the name of another provider.
type markerDevice struct {
	verbs.Context
	provider string
}

// Info implements verbs.Context.
func (d *markerDevice) Info() verbs.DeviceInfo {
	info := d.Context.Info()
	info.Provider = d.provider
	return info
}
