// Package nic has the parts that the emulated NICs share: memory regions and windows with
// their keys, protection domains, completion queues, receive queues, SRQs, send work
// requests, the QP state machine, and asynchronous events; and a FIFO, a timer heap and a
// keyed hash for the engines. It does not handle packets.
//
// Like the engines that use it, it has no clock, lock or random numbers and must be called
// from one goroutine at a time. All sizes of verbs objects are bounded; their queues allocate
// only when created.
package nic
