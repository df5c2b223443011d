// Package nic has the parts that the emulated NICs share: memory regions and windows with
// their keys, protection domains, completion queues, receive queues, SRQs, send work
// requests, the QP state machine, and asynchronous events. It does not handle packets.
//
// Like the engines that use it, it has no clock, lock or random numbers and must be called
// from one goroutine at a time. All sizes are bounded; queues allocate only when created.
package nic
