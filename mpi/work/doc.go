// Package work contains the built-in programs of the runtime: communication skeletons of
// known benchmarks and applications. Each moves real data in the pattern that papers report
// of its model (partners, sizes, wildcards, order of receives) and verifies its result: a
// system is really solved, keys are really sorted, and transported bytes are compared with
// those sent. The command fabrictest mpirun and the tests of the runtime run them.
//
// A workload is not the benchmark of the same name. It has the communication and as much arithmetic
// as a verifiable result needs; its times describe the runtime and the fabric, not the processors.
//
// Wrong data is a *VerificationError with rank and place. A workload repairs nothing and is
// deterministic: two runs with the same parameters send the same bytes.
//
// # Papers
//
// Workloads name the publications that their patterns and expected figures are from:
//
//   - Rashti 2010: M. J. Rashti, thesis, Queen's University (hdl.handle.net/1974/6284):
//     MPI over InfiniBand, iWARP and Myrinet, speculative rendezvous, reuse of small buffers,
//     datagram-iWARP
//   - Rashti 2007: M. J. Rashti and A. Afsahi on overlap and progress over InfiniBand, Myrinet
//     and iWARP
//   - Qian 2010: Y. Qian, thesis, Queen's University: collective operations over Quadrics
//     and InfiniBand; N-BODY, RADIX and FT
//   - Sur 2006: S. Sur, M. Koop and D. Panda on the memory and speed of MVAPICH with the NAS
//     benchmarks, SuperLU, NAMD and HPL
//
// # Concurrency
//
// Run is called by every rank of a world, each with its own *mpi.World and the same
// parameters. The package has no state: ranks may share a process.
package work
