package cm

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// EventKind is the type of an Event.
type EventKind uint8

// Events.
const (
	// EventRequest: a REQ for a listener arrived. Call Accept or Reject.
	EventRequest EventKind = iota + 1
	// EventReply: a REP arrived. Modify the queue pair and call ConfirmReply, or call Reject.
	EventReply
	// EventEstablished: an RTU or data arrived (passive side only).
	EventEstablished
	// EventRejected: a REJ arrived or, if ByUs is set, was sent by this agent.
	EventRejected
	// EventTimedOut: the peer did not answer in State.
	EventTimedOut
	// EventMRA: the peer needs up to ServiceTimeout to answer.
	EventMRA
	// EventDisconnectRequested: a DREQ arrived. The agent has sent a DREP.
	EventDisconnectRequested
	// EventDisconnected: Disconnect is complete, or the peer rejected an established connection.
	EventDisconnected
	// EventTimeWaitExit: the queue pair and the IDs may be reused.
	EventTimeWaitExit
	// EventSIDRRequest: a SIDR_REQ for a listener arrived. Call SIDRReply.
	EventSIDRRequest
	// EventSIDRReply: a SIDR_REP arrived.
	EventSIDRReply
)

var eventNames = [...]string{
	"no event", "request", "reply", "established", "rejected", "timed out", "MRA", "disconnect requested",
	"disconnected", "time wait exit", "SIDR request", "SIDR reply",
}

// String returns the name of the kind.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event reports a change of a connection or SIDR request.
type Event struct {
	Kind  EventKind
	Conn  ConnID
	Final bool // last event of Conn, which is invalid from now on

	Request     *Request     // EventRequest
	Reply       *Reply       // EventReply
	SIDRRequest *SIDRRequest // EventSIDRRequest
	SIDRReply   *SIDRReply   // EventSIDRReply

	Reason wire.REJReason // EventRejected
	About  wire.About     // EventRejected: type of the rejected message
	ByUs   bool           // EventRejected: rejected by this agent
	Info   []byte         // EventRejected: additional reject information

	State          State // EventTimedOut: state in which the timer expired
	ServiceTimeout uint8 // EventMRA
	ByData         bool  // EventEstablished: by Established, not by an RTU

	// PrivateData is the consumer's private data with the full length of the field; the
	// message does not carry the actual length.
	PrivateData []byte
}

// Request is a received REQ. Its StartPSN is the first PSN that this side sends.
type Request struct {
	*wire.REQ
	Listen    ListenID
	Path      Path // path to the requester
	Transport Transport
	RemoteQPN uint32
	SrcPort   uint16     // IP services only
	SrcAddr   netip.Addr // IP services only: source address in the rdma_cm header
}

// Reply is a received REP. Its StartPSN is the first PSN that this side sends.
type Reply struct {
	*wire.REP
	RemoteQPN uint32
}

// SIDRRequest has the fields of a received SIDR_REQ.
type SIDRRequest struct {
	Listen        ListenID
	ServiceID     wire.ServiceID
	Local, Remote netip.Addr
	PKey          uint16
	SrcPort       uint16     // IP services only
	SrcAddr       netip.Addr // IP services only
}

// SIDRReply has the fields of a received SIDR_REP.
type SIDRReply struct {
	Status    wire.SIDRStatus
	ServiceID wire.ServiceID
	QPN       uint32
	QKey      uint32
	Info      []byte
}
