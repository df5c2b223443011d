// Package mpihost starts the ranks of the multi-rank runtime (package mpi) and
// gives each its env.Env. In a simulation, a rank is a coroutine in virtual time
// ([InWorld]). In network namespaces, each rank is a process ([Join]).
//
// It provides devices, control messages between ranks (env.Control), and the
// detection of ranks that have ended. It does not know the runtime's messages.
//
// A [World] belongs to the goroutine that calls InWorld, and to its ranks while
// they run, one at a time. The Env of a rank in a process is safe for concurrent
// use.
package mpihost
