package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Address is the entry of the device's GID table that the bench uses: that of the address
// at which the device and its peers meet. Of a partner's device, whose addresses no bench
// names, it is the first that routes. There may be others before it: of RoCE's first
// version, and those that hold on the link alone.
func (r *Rig) Address() verbs.GIDEntry {
	port, err := r.Device.QueryPort(1)
	r.Do("a port that can be queried", err)
	best, found := verbs.GIDEntry{}, fits(-1)
	// Tables may be long, and each entry is a question to the device.
	for i := 0; i < port.GIDs && found < meets; i++ {
		g, err := r.Device.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) {
			continue // a place that is free
		}
		r.Do(fmt.Sprintf("entry %d of a GID table of %d", i, port.GIDs), err)
		if f := fit(&g, r.Local); f > found {
			best, found = g, f
		}
	}
	r.Check(found >= 0, "a GID table with an entry", "%d places, all of them free", port.GIDs)
	return best
}

// fits says how well an entry of a GID table does.
type fits int

const (
	stands   fits = iota // it is there
	nearby               // it leads to neighbours
	anywhere             // it leads across routers
	meets                // it is where the device and its peers meet
)

func fit(g *verbs.GIDEntry, local []netip.Addr) fits {
	switch a := g.GID.Addr(); {
	case g.Type != verbs.GIDTypeRoCEv2 || a.IsUnspecified():
		return stands
	case slices.Contains(local, a):
		return meets
	case a.IsLinkLocalUnicast():
		return nearby
	}
	return anywhere
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
