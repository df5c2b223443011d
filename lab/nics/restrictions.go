package nics

import "github.com/fabrictest/fabrictest/verbs"

// Restrictions are the capabilities that a device lacks compared to its provider.
// Cases that need them are not run.
type Restrictions struct {
	// MissingCaps are the capabilities that the device does not claim.
	MissingCaps verbs.Caps
	// PKeys is the P_Key table; empty for the default.
	PKeys []uint16
	// Options are those of the device that differ from the defaults.
	Options Options
}

// Apply returns a device that does not claim the missing capabilities.
func (c Restrictions) Apply(d verbs.Context) verbs.Context {
	if c.MissingCaps == 0 {
		return d
	}
	return &restrictedDevice{d, c.MissingCaps}
}

type restrictedDevice struct {
	verbs.Context
	without verbs.Caps
}

// QueryDevice implements verbs.Context.
func (m *restrictedDevice) QueryDevice() (verbs.DeviceAttr, error) {
	attr, err := m.Context.QueryDevice()
	attr.Caps &^= m.without
	return attr, err
}
