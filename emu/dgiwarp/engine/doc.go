// Package engine implements a datagram-iWARP NIC as a state machine: connectionless queue
// pairs, unreliable (UD) or reliable (RD), over UDP. Its inputs are work requests, datagrams
// and the time; its outputs are datagrams, completions, events and the next deadline.
// docs/spec/datagram-iwarp.md specifies the protocol.
//
// It has no socket, clock, goroutine, lock or source of randomness, and sets up no
// connections. Memory and queues are in emu/internal/nic, DDP and RDMAP of reliable flows in
// emu/iwarp, reliability in emu/dgiwarp/rd. This package adds the queue pairs, and
// DDP for UD, where every packet is self-contained.
//
// A driver owns a NIC and calls it from one goroutine at a time:
//
//	nic.Input(now, datagram)      for every datagram that arrives
//	nic.Tick(now)                 when nic.Deadline() has passed
//	n := nic.Output(now, batch)   until it returns less than fits
//
// In between it passes work requests to the NIC, and completions and events to applications.
package engine
