// Package engine is a datagram-iWARP NIC as a plain value: queue pairs without
// connections, unreliable (UD) or reliable (RD), over UDP. Work requests,
// datagrams and the time go in; datagrams, completions, events and the next
// deadline come out. docs/spec/datagram-iwarp.md says what it does on the wire.
//
// It refuses to hold a socket, clock, goroutine, lock or source of randomness, to
// set anything up between two hosts, and to remember a peer longer than it must.
// What it shares with other NICs (memory, queues) is emu/internal/nic, DDP and
// RDMAP on reliable flows are emu/internal/iwarp, and what makes flows reliable is
// emu/dgiwarp/rd. Its own are the queue pairs, and DDP where nothing is reliable:
// light, since every packet speaks for itself.
//
// A driver owns a NIC and calls it from one goroutine at a time:
//
//	nic.Input(now, datagram)      for every datagram that arrives
//	nic.Tick(now)                 when nic.Deadline() has passed
//	n := nic.Output(now, batch)   until it returns less than fits
//
// and, in between, hands on what applications ask for and what the NIC reports.
package engine
