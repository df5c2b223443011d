// Package engine is a RoCEv2 NIC as a plain value. Work requests, datagrams and
// the time go in; datagrams, completions, events and the next deadline come
// out. It holds no socket, clock, goroutine, lock or source of randomness, so
// the same sequence of calls gives the same bytes on every machine.
//
// A driver owns a NIC and calls it from one goroutine at a time:
//
//	nic.Input(now, datagram)      for every datagram that arrives
//	nic.Tick(now)                 when nic.Deadline() has passed
//	n := nic.Output(now, batch)   until it returns 0
//
// and, in between, hands on what applications ask for (CreateQP, PostSend,
// Poll, ...) and what the NIC has to report (NextEvent, NextCompletionEvent,
// NextMAD).
//
// Roles are named as in the InfiniBand specification. On the way out, the
// requester turns work requests into packets and the responder answers; on the
// way in, the responder executes requests and the completer takes answers.
package engine
