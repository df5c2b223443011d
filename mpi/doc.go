// Package mpi is an MPI-like runtime over verbs: point-to-point messages, collective operations and
// one-sided communication (RMA windows), with the semantics of the MPI standard.
//
// A program is a function that every rank runs. Main runs it in a process that `fabrictest
// mpirun` starts; Run runs it as a rank of any environment:
//
//	func main() {
//		mpi.Main(func(w *mpi.World) error {
//			if w.Rank() == 0 {
//				return w.Send([]byte("hello"), 1, 7)
//			}
//			...
//		})
//	}
//
// Buffers are bytes. A buffer passed to a nonblocking call belongs to the runtime until
// its request completes. Calls return their errors unless an error handler is set;
// errors.Is finds the error class.
//
// The package does not move data itself: a Carrier does. Package mpi/p2p implements the eager and
// rendezvous protocols, package mpi/window one-sided operations, and package mpi/coll the algorithms
// of collective operations.
//
// # Concurrency
//
// One goroutine at a time uses a rank and its communicators, requests and windows. In mode
// Background a progress task of the runtime runs in addition. One mutex per rank
// serialises the two; it is not held while the program waits for another rank.
package mpi
