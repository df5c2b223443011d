package mpa

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// RTR is a set of ready-to-receive messages of RFC 6581. They have no payload.
type RTR uint8

// Ready-to-receive messages.
const (
	RTRSend RTR = 1 << iota
	RTRWrite
	RTRRead

	rtrAll = RTRSend | RTRWrite | RTRRead
)

// Params are the parameters of a Request or Reply, and this side's result of the negotiation.
type Params struct {
	// Revision is the MPA revision of the connection or Request. With wire.RevisionConsortium,
	// DDP and RDMAP have version 0, else 1.
	Revision uint8
	// Enhanced is set if PeerIRD and PeerORD are valid.
	Enhanced bool
	// PeerIRD and PeerORD are the depths in the peer's frame, perhaps wire.DepthNotNegotiated.
	PeerIRD, PeerORD uint16
	// IRD and ORD are the depths of this side, negotiated if both sides wanted that, else as
	// configured. In EventRequest they are not known yet.
	IRD, ORD uint16
	// PeerToPeer is set if the initiator's first message is an RTR. RTR is the message that an
	// initiator must send first (a read even if ORD is 0); for a responder it is the set of
	// those that may arrive, or in EventRequest that the initiator requested.
	PeerToPeer bool
	RTR        RTR
	// Out and In are the framing of the two directions.
	Out, In wire.Framing
}

// AcceptParam are the responder's parameters in its Reply.
type AcceptParam struct {
	// IRD and ORD are as in Config. The ORD of the Reply is at most the initiator's IRD. Its
	// IRD is raised to the initiator's ORD, up to Config.MaxIRD.
	IRD, ORD    uint16
	PrivateData []byte // copied
}

// rtrOf returns the RTR flags of e as a set; none outside of the peer-to-peer model.
func rtrOf(e *wire.Enhanced) (r RTR) {
	if !e.PeerToPeer {
		return 0
	}
	if e.RTRSend {
		r |= RTRSend
	}
	if e.RTRWrite {
		r |= RTRWrite
	}
	if e.RTRRead {
		r |= RTRRead
	}
	return r
}

// enhancedData returns the enhanced data of a Request or Reply. Outside of the peer-to-peer model
// it has no RTR flags.
func enhancedData(peerToPeer bool, rtr RTR, ird, ord uint16) wire.Enhanced {
	if !peerToPeer {
		rtr = 0
	}
	return wire.Enhanced{
		PeerToPeer: peerToPeer,
		RTRSend:    rtr&RTRSend != 0, RTRWrite: rtr&RTRWrite != 0, RTRRead: rtr&RTRRead != 0,
		IRD: ird, ORD: ord,
	}
}
