// Package coll has the algorithms of collective operations. An algorithm builds the schedule of one
// rank: rounds of steps that send, receive, copy and reduce parts of three buffers, In, Out and
// Scratch. The package does no I/O: package mpi executes schedules.
//
// A schedule is a function of the call and the number of the round. It is not stored: the executor
// asks for one round after the other, and a persistent operation asks again for the same rounds. So
// the memory of a schedule is that of its largest round.
package coll
