// Package nic has what the emulated NICs share: registered memory and its keys, memory
// windows, protection domains, completion queues, receive queues and shared receive
// queues, work requests of a send queue, the state changes of a queue pair, and events.
// It knows no packets.
//
// It is pure and has a single owner, like the engines that use it: no clock, no lock,
// no random numbers. All sizes are bounded, and queues allocate only when they are made.
package nic
