// Package work contains the built-in programs of the runtime: communication skeletons of
// known benchmarks and applications. Each moves real data in the pattern that papers report
// of its model (partners, sizes, wildcards, order of receives) and verifies its result: a
// system is really solved, keys are really sorted, and transported bytes are compared with
// those sent. The command fabrictest mpirun and the tests of the runtime run them.
//
// A workload is not the benchmark of the same name. It has the communication and as much
// arithmetic as a verifiable result needs; its times describe the runtime and the fabric,
// not the processors.
//
// Wrong data is a *VerificationError with rank and place. A workload repairs nothing and is
// deterministic: two runs with the same parameters send the same bytes.
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
