// Package racecheck detects data races of one-sided communication, and of the buffers of nonblocking
// operations, by the rules of MPI 4.1, chapter 12.
//
// Two accesses race if they overlap, conflict and are concurrent. Each of two halves can be what is
// missing to order them: the first access is complete where it matters, at its origin for the buffers of
// the origin and at its target for the window; and a chain of synchronisation (program order, messages,
// collective operations, fences, post and start, complete and wait) leads from this completion to the
// second access. Two accesses under the same lock, of which one is exclusive, exclude each other.
//
// A [Checker] receives the events of all ranks of a program, in an order in which they can have happened.
// It has no clock, starts no goroutine and does no I/O. A vector clock of each rank and the epochs at which
// operations complete decide what is ordered, so a race is found even if the accesses were far apart in
// this run. Memory is identified by its address: all ranks are in one process, as in simulation.
package racecheck
