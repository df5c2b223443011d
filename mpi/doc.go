// Package mpi is the multi-rank runtime: messages between ranks, and memory that
// they share in windows, with the meaning that MPI gives to these, over verbs.
//
// A program is a function that each rank runs. Main runs it in a process that
// `fabrictest mpirun` starts; Run runs it as a rank of any environment:
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
// Buffers are bytes. A buffer that was handed to a call which does not wait belongs
// to the runtime until its request is complete. Errors are returned, unless an error
// handler does something else with them; errors.Is finds their class.
//
// The package moves no data itself: a carrier does, over whatever paths there are to
// each peer. How a message travels, mpi/p2p settles; what one-sided operations are
// made of, mpi/window. Collective operations here are the few that programs need to
// begin with, by messages.
//
// # Concurrency
//
// A rank, with all that belongs to it, is used by one goroutine at a time, except
// that in mode Background a task of the runtime's own progresses beside it. One lock
// a rank keeps the two apart. It is never held while anybody waits for another rank.
package mpi
