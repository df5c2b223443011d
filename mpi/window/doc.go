// Package window implements one-sided communication: windows of memory that other ranks
// read and write, and the epochs that synchronise them.
//
// Puts and gets are RDMA writes and reads; the target takes no part. Accumulates are atomic per
// element. They are executed either all by NIC atomics on the aligned 8-byte word of an element, or
// all by the target's CPU, which receives a message for each. The choice is made per target when
// the window is created, because the two are not atomic with each other.
//
// An operation that starts before its target is ready (its post or its lock grant has not arrived)
// is queued, and the call does not block. Closing the epoch waits for all of its operations.
//
// An Engine belongs to one rank. It starts no goroutine, takes no lock and never blocks: calls,
// messages and completions go in, messages and transfers go out through a Transport. The caller,
// package mpi, polls predicates such as RemoteComplete until they hold.
package window
