// Package mpa is one MPA connection as a plain value: what stands between a TCP
// stream and DDP. It starts up in either role (RFC 5044, and the enhanced
// start-up of RFC 6581), then puts ULPDUs into FPDUs and takes them out again,
// with CRCs, and with markers where a receiver asked for them.
//
//	initiator                              responder
//	NewInitiator ------- Request --------> EventRequest
//	EventAccepted <------ Reply ---------- Accept
//	Send ---------------- FPDU ----------> EventULPDU, and from then on MaySend
//
// Octets of the stream and the time go in; vectors to write, events and the next
// deadline come out. There is no socket, clock, goroutine, lock or randomness in
// it, and no callback. The owner of a Conn gives it what TCP received, asks for
// what that caused, and writes what there is to write:
//
//	c.Input(now, b)
//	for e, ok := c.Next(); ok; e, ok = c.Next() { ... }
//	bufs = c.Output(bufs[:0])
//	c.Sent(n)
//
// A Conn knows nothing of what is in a ULPDU, never closes a stream (events say
// when it has to be closed) and never repeats anything: that is TCP's.
//
// Memory is borrowed, not copied. What goes to Input belongs to the Conn until
// Next has no more to tell; what an event points to is valid until the next call
// of Next, Input or Accept; and the payload that goes to Send must stay as it is
// until Sent reports that ULPDU, since its CRC is computed at once. What a peer
// can make a Conn keep is bounded: one start-up frame, and one FPDU.
//
// A Conn is not safe for concurrent use.
package mpa
