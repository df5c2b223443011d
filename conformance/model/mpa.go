package model

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// MPA is the reference model of an iWARP device in the start-up of MPA (RFC 5044 section 7.1, RFC
// 6581): what it requests, and the parameters of its application.
type MPA struct {
	Markers, CRC bool
	Param        verbs.ConnParam
	// Rejects: the application rejects a connection request.
	Rejects bool
}

// MPAVerdict is what a device must make of a start-up frame of the peer.
type MPAVerdict int

// Verdicts. A malformed frame ends the stream.
const (
	MPAAccepted MPAVerdict = iota
	MPARejected
	MPAMalformed
)

// maxPrivateData is the largest length of private data.
const maxPrivateData = 512

// frameWellFormed reports whether a frame has the key, and a revision and length that MPA permits.
func frameWellFormed(f iwarp.StartupFrame, key string) bool {
	return *f.Key == key && (*f.Rev == 1 || *f.Rev == 2) && *f.PDLength <= maxPrivateData
}

// enhancedLen is the length of the enhanced connection data at the start of the private data.
const enhancedLen = 4

// Request returns the Request of the device. It may be in the peer-to-peer model or not.
func (d MPA) Request() iwarp.StartupFrame {
	f := iwarp.Request().Markers(d.Markers).Reject(false).ReservedBits(0).Revision(2).SFlag(true).Private(d.Param.PrivateData)
	if d.CRC {
		f = f.CRC(true)
	}
	return f.Depths(uint16(d.Param.ResponderResources), uint16(d.Param.InitiatorDepth)).PrivateLength(uint16(enhancedLen + len(d.Param.PrivateData)))
}

// Reply returns the Reply of the device to a Request with all fields set.
func (d MPA) Reply(request iwarp.StartupFrame) (iwarp.StartupFrame, MPAVerdict) {
	if !frameWellFormed(request, iwarp.KeyRequest) {
		return iwarp.StartupFrame{}, MPAMalformed
	}
	f := iwarp.Reply().Markers(d.Markers).Reject(d.Rejects).ReservedBits(0).Revision(*request.Rev).Private(d.Param.PrivateData)
	if d.CRC {
		f = f.CRC(true)
	}
	n := len(d.Param.PrivateData)
	f = f.SFlag(request.Enhanced != nil)
	if request.Enhanced != nil {
		n += enhancedLen
	}
	f = f.PrivateLength(uint16(n))
	if d.Rejects {
		f.M, f.C = nil, nil // no FPDUs follow
		return f, MPARejected
	}
	if e := request.Enhanced; e != nil {
		f = f.EditEnhanced(func(reply *iwarp.Enhanced) { *reply = replyFlags(*e) })
	}
	return f, MPAAccepted
}

// replyFlags returns the flags and values of a Reply that follow from those of the Request.
func replyFlags(request iwarp.Enhanced) (reply iwarp.Enhanced) {
	reply.PeerToPeer = request.PeerToPeer
	if !*request.PeerToPeer {
		reply.SendRTR, reply.WriteRTR, reply.ReadRTR = new(false), new(false), new(false)
	}
	if *request.ORD == iwarp.NoNegotiation {
		reply.IRD = request.ORD
	}
	if *request.IRD == iwarp.NoNegotiation {
		reply.ORD = request.IRD
	}
	return reply
}

// CheckReply checks the values of a Reply that the Request only limits. The error says what is
// expected. An IRD of 1 is always permitted.
func (d MPA) CheckReply(request, reply iwarp.StartupFrame) error {
	asked, offered := request.Enhanced, reply.Enhanced
	switch {
	case asked == nil || d.Rejects:
		return nil
	case offered == nil:
		return fmt.Errorf("a Reply with enhanced data")
	case *offered.PeerToPeer && !*offered.SendRTR && !*offered.WriteRTR && !*offered.ReadRTR:
		return fmt.Errorf("a Reply that names an RTR")
	case *asked.IRD != iwarp.NoNegotiation && *offered.ORD > *asked.IRD:
		return fmt.Errorf("an ORD of at most %d, the IRD of the Request", *asked.IRD)
	case *asked.IRD != iwarp.NoNegotiation && *offered.ORD > uint16(d.Param.InitiatorDepth):
		return fmt.Errorf("an ORD of at most %d, that of the application", d.Param.InitiatorDepth)
	case *asked.ORD != iwarp.NoNegotiation && *offered.IRD > max(*asked.ORD, uint16(d.Param.ResponderResources), 1):
		return fmt.Errorf("an IRD of at most %d, the larger of the Request's ORD and the application's IRD", max(*asked.ORD, uint16(d.Param.ResponderResources), 1))
	}
	return nil
}

// ReplyVerdict returns how the device reacts to a Reply with all fields set.
func (d MPA) ReplyVerdict(reply iwarp.StartupFrame) MPAVerdict {
	switch {
	case !frameWellFormed(reply, iwarp.KeyReply):
		return MPAMalformed
	case *reply.R:
		return MPARejected
	}
	return MPAAccepted
}
