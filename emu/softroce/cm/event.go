package cm

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// EventKind says what happened.
type EventKind uint8

// Events.
const (
	// EventRequest: a REQ for a listener. Answer with Accept or Reject, put off
	// with DelayReply.
	EventRequest EventKind = iota + 1
	// EventReply: the peer accepted. Move the queue pair, then ConfirmReply, or
	// Reject.
	EventReply
	// EventEstablished: passive side only; RTU or data came.
	EventEstablished
	// EventRejected: a REJ came, or, with ByUs set, this agent had to send one.
	EventRejected
	// EventTimedOut: no answer; State says to what.
	EventTimedOut
	// EventMRA: the peer needs up to ServiceTimeout.
	EventMRA
	// EventDisconnectRequested: the peer ended the connection. It has been
	// answered, unless Config.ConsumerDREP leaves that to DisconnectReply.
	EventDisconnectRequested
	// EventDisconnected: our Disconnect is complete.
	EventDisconnected
	// EventTimeWaitExit: the queue pair and the IDs may be used again.
	EventTimeWaitExit
	// EventSIDRRequest: a SIDR_REQ for a listener. Answer with SIDRReply.
	EventSIDRRequest
	// EventSIDRReply: the answer to SIDRRequest.
	EventSIDRReply
)

var eventNames = [...]string{
	"no event", "request", "reply", "established", "rejected", "timed out", "MRA", "disconnect requested",
	"disconnected", "time wait exit", "SIDR request", "SIDR reply",
}

// String prints the kind's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event tells what became of a connection or lookup.
type Event struct {
	Kind  EventKind
	Conn  ConnID
	Final bool // the last event of Conn, which means nothing from now on

	Request     *Request     // EventRequest
	Reply       *Reply       // EventReply
	SIDRRequest *SIDRRequest // EventSIDRRequest
	SIDRReply   *SIDRReply   // EventSIDRReply

	Reason mad.Reason // EventRejected
	About  mad.About  // EventRejected: which message was refused
	ByUs   bool       // EventRejected: this agent found the fault
	Info   []byte     // EventRejected: additional reject information

	State          State // EventTimedOut: the state that took too long
	ServiceTimeout uint8 // EventMRA
	ByData         bool  // EventEstablished: by Established, not by an RTU

	// PrivateData is the consumer's part of what the message carried, in its
	// full length, since the wire does not say how much of it was meant.
	PrivateData []byte
}

// Request is a REQ as the passive side sees it.
type Request struct {
	Listen       ListenID
	ServiceID    mad.ServiceID
	Path         Path // from here to the requester
	Transport    Transport
	RemoteCAGUID uint64
	RemoteQPN    uint32
	StartPSN     uint32 // the first PSN that we are to send
	RespRes      uint8  // READs and atomics the requester can serve
	InitDepth    uint8  // READs and atomics the requester wants to have in flight
	RetryCount   uint8
	RNRRetry     uint8
	SRQ          bool
	E2EFlow      bool
	SrcPort      uint16     // IP services only
	SrcAddr      netip.Addr // IP services only: as the requester's rdma_cm says
}

// Reply is a REP as the active side sees it.
type Reply struct {
	RemoteCAGUID   uint64
	RemoteQPN      uint32
	StartPSN       uint32 // the first PSN that we are to send
	RespRes        uint8
	InitDepth      uint8
	TargetAckDelay uint8
	Failover       mad.Failover
	RNRRetry       uint8
	SRQ            bool
	E2EFlow        bool
}

// SIDRRequest is a SIDR_REQ as its receiver sees it.
type SIDRRequest struct {
	Listen        ListenID
	ServiceID     mad.ServiceID
	Local, Remote netip.Addr
	PKey          uint16
	SrcPort       uint16     // IP services only
	SrcAddr       netip.Addr // IP services only
}

// SIDRReply is the answer to a lookup.
type SIDRReply struct {
	Status    mad.SIDRStatus
	ServiceID mad.ServiceID
	QPN       uint32
	QKey      uint32
	Info      []byte
}
