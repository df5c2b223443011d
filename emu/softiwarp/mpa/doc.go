// Package mpa implements one MPA connection, the layer between a TCP stream and DDP, as a
// state machine: connection setup in either role (RFC 5044, and the enhanced setup of RFC
// 6581), then framing of ULPDUs in FPDUs, with CRCs, and markers if a receiver requests them.
//
//	initiator                              responder
//	NewInitiator ------- Request --------> EventRequest
//	EventAccepted <------ Reply ---------- Accept
//	Send ---------------- FPDU ----------> EventULPDU, and from then on MaySend
//
// Its inputs are octets of the stream and the time; its outputs are buffers to write, events
// and the next deadline. It has no socket, clock, goroutine, lock, randomness or callback. The
// owner of a Conn passes it received octets, handles the events and writes the output:
//
//	c.Input(now, b)
//	for e, ok := c.Next(); ok; e, ok = c.Next() { ... }
//	bufs = c.Output(bufs[:0])
//	c.Sent(n)
//
// A Conn does not interpret ULPDUs, never closes the stream (events say when to close it)
// and retransmits nothing: TCP does.
//
// Memory is borrowed, not copied. The slice passed to Input belongs to the Conn until Next
// reports false. The memory of an event is valid until the next call of Next, Input or Accept.
// The payload passed to Send must not change until Sent has counted that ULPDU, since its CRC
// is computed at once. A peer can make a Conn store at most one Request or Reply, and one FPDU.
//
// [Policy] has the decisions in which real devices differ from the RFCs.
//
// A Conn is not safe for concurrent use.
package mpa
