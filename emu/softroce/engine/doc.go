// Package engine implements a RoCEv2 NIC without I/O. Its inputs are work requests,
// datagrams and the time; its outputs are datagrams, completions, events and the next
// deadline. It has no socket, clock, goroutine, lock or source of randomness: the same
// sequence of calls gives the same bytes on every machine. Package softroce drives it.
//
// A driver owns a NIC and calls it from one goroutine at a time:
//
//	nic.Input(now, datagram)      for every datagram that arrives
//	nic.Tick(now)                 when nic.Deadline() has passed
//	n := nic.Output(now, batch)   until it returns 0
//
// Between these calls the driver passes on the verbs calls of applications (CreateQP,
// PostSend, Poll, ...) and collects events (NextEvent, NextCompletionEvent, NextMAD).
//
// Roles have the names of the InfiniBand specification: the requester sends request
// packets, the responder executes them and sends responses, and the completer handles
// responses and completes work requests.
//
// A file uses only files that come before it here:
//
//   - policy, counters, dcqcn, config, path
//   - requester_state, ackdelay, responder_state: state that does not know its QP
//   - nic: NIC and QP, how a QP fails, and its completions; device
//   - packet, migrate, congestion
//   - receive, answer, read, responder: the responder
//   - retry, requester, completer: the requester
//   - uc, ud, gsi
//   - input, output, post, qp: the calls of a driver
//
// [Policy] has the decisions in which real devices differ from the specification. Its zero
// value follows the specification.
package engine
