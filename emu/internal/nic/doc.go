// Package nic holds what the emulated NICs have in common above their memory:
// protection domains, completion queues, receive queues and shared ones, the
// work requests in a send queue, and events. What a NIC says on the wire is its
// own affair.
//
// It is pure and single-owner, like the engines that use it: no clock, no lock,
// no randomness. Nothing grows without bound, and after a queue has been made
// nothing that passes through it allocates.
package nic
