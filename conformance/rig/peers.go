package rig

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
)

// PeerAt is one of the peer's addresses, counting from 0. A judge that has fewer cannot
// stand for so many hosts, and the case ends.
func (r *Rig) PeerAt(i int) netip.Addr {
	if i >= len(r.Peers) {
		End(fmt.Errorf("%w: the judge has %d addresses in the device's network, and the case wants %d", conformance.ErrCannot, len(r.Peers), i+1))
	}
	return r.Peers[i]
}
