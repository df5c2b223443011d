package rig

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
)

// PeerAddr returns one of the peer's addresses, counting from 0. The case ends as
// unsupported if the peer has fewer.
func (r *Rig) PeerAddr(i int) netip.Addr {
	if i >= len(r.Peers) {
		Abort(fmt.Errorf("%w: the peer has %d addresses in the device's network, the case needs %d", conformance.ErrBenchCannot, len(r.Peers), i+1))
	}
	return r.Peers[i]
}
