package nics

import "github.com/fabrictest/fabrictest/verbs"

// Claims are what a device has less of than others of its provider. What it does not
// claim nobody may ask of it, so that it says nothing of the device if it could do it
// all the same.
type Claims struct {
	// Without are the capabilities that it does not claim.
	Without verbs.Caps
	// PKeys are the partitions that it is in; as they are if empty. They are for
	// whoever opens the device.
	PKeys []uint16
	// ClientServer is Setup's, for whoever opens the device: of the two models of
	// connections that iWARP has, it asks for the older one only.
	ClientServer bool
}

// Of returns a device that claims no more than that.
func (c Claims) Of(d verbs.Context) verbs.Context {
	if c.Without == 0 {
		return d
	}
	return &modest{d, c.Without}
}

// modest is a device that takes back what it claims.
type modest struct {
	verbs.Context
	without verbs.Caps
}

// QueryDevice implements verbs.Context.
func (m *modest) QueryDevice() (verbs.DeviceAttr, error) {
	attr, err := m.Context.QueryDevice()
	attr.Caps &^= m.without
	return attr, err
}
