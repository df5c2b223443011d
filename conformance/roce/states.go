package roce

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// pathMTU is the default path MTU of connections.
const pathMTU = verbs.MTU1024

// toInit moves an RC or UC queue pair from RESET to INIT.
func (p *Port) toInit(qp verbs.QP, access verbs.Access) {
	p.Must("a queue pair in INIT", qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: access},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
}

// peerAttr returns the default attributes of a connection with the peer. There is no ACK
// timeout.
func (p *Port) peerAttr(peer netip.Addr) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: pathMTU, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, RetryCnt: 7, RNRRetry: 7,
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(peer), SGIDIndex: p.GIDIndex(), HopLimit: 64}},
	}
}

// Required attributes of the transitions, for all connected types.
const (
	toRTRMask = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	toRTSMask = verbs.QPAttrState | verbs.QPAttrSQPSN
)

// toRTR moves a connected queue pair from INIT to RTR.
func (p *Port) toRTR(qp verbs.QP, a verbs.QPAttr) {
	mask := toRTRMask
	if t := qp.Type(); t == verbs.QPTypeRC || t == verbs.QPTypeXRCRecv {
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	a.State = verbs.QPStateRTR
	p.Must("a queue pair in RTR", qp.Modify(a, mask))
}

// toRTS moves a connected queue pair from RTR to RTS.
func (p *Port) toRTS(qp verbs.QP, a verbs.QPAttr) {
	mask := toRTSMask
	switch qp.Type() {
	case verbs.QPTypeRC, verbs.QPTypeXRCSend:
		mask |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	case verbs.QPTypeXRCRecv:
		mask |= verbs.QPAttrTimeout
	}
	a.State = verbs.QPStateRTS
	p.Must("a queue pair in RTS", qp.Modify(a, mask))
}

// toError moves a queue pair to ERR.
func (p *Port) toError(qp verbs.QP) {
	p.Must("a queue pair in ERR", qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
}

// GIDIndex returns the index of the device's first address, as RoCEv2, in its GID table.
// Link-local and RoCEv1 entries often precede it.
func (p *Port) GIDIndex() uint8 {
	attr, err := p.Device.QueryPort(1)
	p.Must("a port that can be queried", err)
	for i := range attr.GIDs {
		if e, err := p.Device.QueryGID(1, i); err == nil && e.GID.Addr() == p.Local[0] && e.Type == verbs.GIDTypeRoCEv2 {
			return uint8(i)
		}
	}
	p.Fail(fmt.Sprintf("a GID of RoCEv2 for %v, an address of the device", p.Local[0]), "none")
	return 0
}
