package dgiwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Provider lists datagram-iWARP devices by name and opens them on demand.
type Provider struct {
	devices []verbs.DeviceInfo
	open    map[string]func() (*Device, error)
}

var _ verbs.Provider = (*Provider)(nil)

// Add adds a device. Open calls open.
func (p *Provider) Add(name string, open func() (*Device, error)) {
	if p.open == nil {
		p.open = map[string]func() (*Device, error){}
	}
	p.devices = append(p.devices, verbs.DeviceInfo{Name: name, Provider: p.Name(), Transport: verbs.TransportIWARP})
	p.open[name] = open
}

// Name is "dgiwarp".
func (p *Provider) Name() string { return "dgiwarp" }

// Devices lists the devices in the order they were added.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return p.devices, nil }

// Open opens a device.
func (p *Provider) Open(name string) (verbs.Context, error) {
	open, ok := p.open[name]
	if !ok {
		return nil, &verbs.OpError{Op: "open_device", Obj: name, Err: fmt.Errorf("%w among %d devices", verbs.ErrNotFound, len(p.devices))}
	}
	d, err := open()
	if err != nil {
		return nil, &verbs.OpError{Op: "open_device", Obj: name, Err: err}
	}
	return d, nil
}
