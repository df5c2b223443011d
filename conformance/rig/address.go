package rig

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Address is the entry of the device's GID table that the bench uses: the first that
// routes. There may be others before it, of RoCE's first version.
func (r *Rig) Address() (first verbs.GIDEntry) {
	port, err := r.Device.QueryPort(1)
	r.Do("a port that can be queried", err)
	for i := range port.GIDs {
		g, err := r.Device.QueryGID(1, i)
		r.Do(fmt.Sprintf("entry %d of a GID table of %d", i, port.GIDs), err)
		switch {
		case g.Type == verbs.GIDTypeRoCEv2:
			return g
		case i == 0:
			first = g
		}
	}
	return first
}

// PathTo leads from the device to that of another application.
func (r *Rig) PathTo(other *Rig) verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: other.Address().GID, SGIDIndex: uint8(r.Address().Index), HopLimit: 64}}
}

// Manager is the device's connection manager.
func (r *Rig) Manager() verbs.CM {
	cm, err := r.Device.CM()
	r.Do("a connection manager", err)
	return cm
}
