// Package mpihost starts the ranks of the multi-rank runtime (package mpi) and
// gives each its transport.Env. In a simulation, a rank is a coroutine in virtual time
// ([InWorld]). In network namespaces, each rank is a process ([Join]).
//
// It provides devices, control messages between ranks (transport.Control), and the
// detection of ranks that have ended. It does not know the runtime's messages.
//
// It registers itself as the launcher of package mpi: a program that imports it and
// calls mpi.Main is a rank of `fabrictest mpirun`, or all ranks of a simulation:
//
//	import _ "github.com/fabrictest/fabrictest/lab/mpihost"
//
// A [World] belongs to the goroutine that calls InWorld, and to its ranks while they run, one at a
// time. A process rank's Env is safe for concurrent use.
package mpihost
