// Package cm implements the InfiniBand connection manager (CM) for RoCEv2. It exchanges
// management datagrams (MADs) on QP 1 to connect queue pairs, with the state machines of
// chapter 12 of the InfiniBand specification and rdma_cm's service IDs for IP ports.
//
// An Agent does no I/O. Its inputs are calls, received MADs and the time; its outputs are
// MADs to send, events and the next deadline. It has no clock, socket, lock, goroutine or
// randomness. It does not modify queue pairs: its owner does that when it gets events.
//
//	active side                         passive side
//	Connect ----------- REQ ----------> EventRequest
//	EventReply <------- REP ----------- Accept
//	ConfirmReply ------ RTU ----------> EventEstablished
//	Disconnect -------- DREQ ---------> EventDisconnectRequested
//	EventDisconnected <- DREP --------- (sent automatically)
//	EventTimeWaitExit                   EventTimeWaitExit
//
// The agent retransmits REQ, REP and DREQ by timer, and RTU, MRA and DREP when it receives
// a duplicate of the message that they answer. A side that gives up sends a REJ. A message
// for an unknown connection is rejected.
//
// The events of a connection are in order, and the last one has Final set: its ConnID is
// then invalid. It is also invalid, without an event, after Reject, SIDRReply or Close.
// Config limits the resources that peers can use; dropped messages are counted.
//
// An Agent is not safe for concurrent use.
package cm
