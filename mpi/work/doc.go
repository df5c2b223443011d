// Package work is the built-in programs of the runtime: communication skeletons of
// known benchmarks and applications. Each moves real data in the pattern that papers
// report of its model (partners, sizes, wildcards, order of receives) and checks its
// own answer: a matrix is really solved, keys are really sorted, and bytes that are
// merely carried are compared with what was sent.
//
// A workload is not the benchmark whose name it has. It takes over the communication
// and as much arithmetic as an answer needs that can be checked; speeds of it are
// about the runtime and the fabric, and say nothing about a machine's processors.
//
// What goes wrong with data is a *WrongError that names rank and place. A workload
// never repairs anything, and leaves nothing to chance: two runs with the same
// parameters send the same bytes.
//
// # Papers
//
// Workloads name the papers that their patterns are from:
//
//   - Thesis: the dissertation on MPI over InfiniBand, iWARP and Myrinet, of Queen's
//     University (hdl.handle.net/1974/6284): characteristics, speculative rendezvous,
//     reuse of small buffers, datagram-iWARP
//   - Collectives: that on collective operations over Quadrics and InfiniBand, of the same
//     university: N-BODY, RADIX and FT
//   - Overlap: the paper on overlap and progress over InfiniBand, Myrinet and iWARP, of
//     2007
//   - Survey: the paper on the memory and speed of MVAPICH with the NAS benchmarks,
//     SuperLU, NAMD and HPL, of 2006
//
// # Concurrency
//
// Run is called by every rank of a world, each with its own *mpi.World and the same
// parameters. The package has no state: ranks may share a process.
package work
