package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// GIDEntry returns the best entry of the device's GID table to send with: a RoCEv2 entry of one of
// r.Local, the device's addresses, else a routable RoCEv2 entry, else a link-local one, else any.
func (r *Rig) GIDEntry() verbs.GIDEntry {
	port := r.QueryPort()
	best, bestRank := verbs.GIDEntry{}, gidRank(-1) // below every rank: none found yet
	// Tables may be long, and each entry costs a verb call: stop at the best rank.
	for i := 0; i < port.GIDs && bestRank < gidDeviceAddress; i++ {
		g, err := r.Device.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) {
			continue // an empty entry
		}
		r.Must(fmt.Sprintf("entry %d of a GID table of %d", i, port.GIDs), err)
		if rank := rankGID(&g, r.Local); rank > bestRank {
			best, bestRank = g, rank
		}
	}
	r.Check(bestRank >= 0, "a GID table with an entry", "%d entries, all of them empty", port.GIDs)
	return best
}

// gidRank orders GID table entries by how well they suit the bench.
type gidRank int

const (
	gidFallback      gidRank = iota // any other entry, such as RoCEv1
	gidLinkLocal                    // RoCEv2, on the local link only
	gidRoutable                     // RoCEv2, routable
	gidDeviceAddress                // RoCEv2, one of the device's addresses: the best
)

// rankGID returns how suitable a GID is to send with. local are the device's addresses.
func rankGID(g *verbs.GIDEntry, local []netip.Addr) gidRank {
	switch a := g.GID.Addr(); {
	case g.Type != verbs.GIDTypeRoCEv2 || a.IsUnspecified():
		return gidFallback
	case slices.Contains(local, a):
		return gidDeviceAddress
	case a.IsLinkLocalUnicast():
		return gidLinkLocal
	}
	return gidRoutable
}

// PathTo returns the address vector from the device of r to the device of other.
func (r *Rig) PathTo(other *Rig) verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: other.GIDEntry().GID, SGIDIndex: uint8(r.GIDEntry().Index), HopLimit: 64}}
}

// CM returns the device's connection manager.
func (r *Rig) CM() verbs.CM {
	return Result(r.Device.CM())(r, "a connection manager")
}

// PeerAddr returns address i of the peer, counted from 0. The case ends as unsupported if the
// peer has fewer addresses.
func (r *Rig) PeerAddr(i int) netip.Addr {
	if i >= len(r.Peers) {
		BenchCannot("the peer has %d addresses in the device's network, the case needs %d", len(r.Peers), i+1)
	}
	return r.Peers[i]
}
