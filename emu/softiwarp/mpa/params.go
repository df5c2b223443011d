package mpa

import (
	"strings"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// RTR is a set of messages by which an initiator can say that it is ready to
// receive. All of them carry nothing.
type RTR uint8

// The kinds of RTR.
const (
	RTRSend RTR = 1 << iota
	RTRWrite
	RTRRead

	rtrAll = RTRSend | RTRWrite | RTRRead
)

// String prints the kinds in r.
func (r RTR) String() string {
	names := make([]string, 0, 3)
	for i, name := range [...]string{"send", "write", "read"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "+")
}

// Params is what the start-up frames say, and what follows from them for this
// side once both are there.
type Params struct {
	// Revision is that of the connection; of a Request, that of the Request. With
	// wire.RevisionConsortium DDP and RDMAP have version 0, else 1.
	Revision uint8
	// Enhanced says that the depths of the peer mean something.
	Enhanced bool
	// PeerIRD and PeerORD are what the peer's frame says, for the application to
	// see: they may be wire.DepthNotNegotiated.
	PeerIRD, PeerORD uint16
	// IRD and ORD are those of this side now: how many reads it has to be able to
	// take, and how many it may have under way. They are settled with the peer
	// where both wanted that, else as they were configured. In a Request they are
	// not known yet.
	IRD, ORD uint16
	// PeerToPeer says that the initiator's first message is an RTR. RTR says
	// which: to an initiator the one that it has to send, before anything else
	// (if that is a read, one read whatever ORD says); to a responder those that
	// may come, or in a Request those that the initiator asked for.
	PeerToPeer bool
	RTR        RTR
	// Out and In are how the two directions are framed.
	Out, In wire.Framing
}

// AcceptParam is what a responder says to a Request.
type AcceptParam struct {
	// IRD and ORD are as in Config. The Reply never has a higher ORD than the
	// initiator's IRD. Its IRD is raised to the initiator's ORD as far as
	// Config.MaxIRD permits.
	IRD, ORD    uint16
	PrivateData []byte // copied
}

// rtrOf returns the kinds of RTR in e. Outside the peer-to-peer model they mean
// nothing.
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

// enhancedData returns what goes in front of the private data.
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
