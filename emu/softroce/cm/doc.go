// Package cm is a connection manager: the side of RoCEv2 that agrees with a
// peer, over management datagrams on QP 1, which queue pairs talk to each
// other. It follows the state machines of chapter 12 of the InfiniBand
// specification, and rdma_cm's conventions for services that are IP ports.
//
// An Agent is a plain value. Calls, received MADs and the time go in; MADs to
// send, events and the next deadline come out. It has no clock, socket, lock,
// goroutine or randomness, and never touches a queue pair: events say what
// became of a connection, and its owner moves the queue pairs.
//
//	active side                         passive side
//	Connect ----------- REQ ----------> EventRequest
//	EventReply <------- REP ----------- Accept
//	ConfirmReply ------ RTU ----------> EventEstablished
//	Disconnect -------- DREQ ---------> EventDisconnectRequested
//	EventDisconnected <- DREP --------- (answered by itself)
//	EventTimeWaitExit                   EventTimeWaitExit
//
// Whatever is lost is sent again: REQ, REP and DREQ by timer, RTU, MRA and
// DREP when the peer repeats what they answered. A side that gives up says so
// with a REJ, and a message for a connection that no longer exists is refused,
// so that neither side waits longer than its retries take.
//
// Every event of a connection comes in order, and the last one has Final set:
// from then on its ConnID means nothing. It means nothing either, and there is
// no event, once the consumer itself has refused what was asked of it (Reject,
// SIDRReply) or let go of it (Close). A peer can cost the agent no more than
// the limits in Config allow; what is dropped is counted.
//
// An Agent is not safe for concurrent use: its driver owns it.
package cm
