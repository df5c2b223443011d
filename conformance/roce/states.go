package roce

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// pathMTU is the default path MTU of connections.
const pathMTU = verbs.MTU1024

// peerAttr returns the default attributes of a connection with the peer. There is no ACK
// timeout.
func (p *Port) peerAttr(peer netip.Addr) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: pathMTU, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, RetryCnt: 7, RNRRetry: 7,
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(peer), SGIDIndex: p.gidIndex(p.Local[0]), HopLimit: 64}},
	}
}
