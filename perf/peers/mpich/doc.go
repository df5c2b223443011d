// Command mpich compares the multi-rank runtime with MPICH: two ranks in two
// network namespaces that a veth pair joins, the same two for both. It creates and
// removes them, and needs root, or a user who may create user namespaces.
//
//	go run -pgo=perf/peers/mpich/ranks.pgo ./perf/peers/mpich [-rounds N] [-slice TIME] [-json]
//
// It measures half round trips of 8 B, 64 B and 4 KiB, the bandwidth of 256 KiB and
// 4 MiB messages, and the rate of 64 B messages with 64 in flight. The ranks of
// both run the same program, call by call: ranks.go over package mpi, and
// c/ranks.c, compiled by mpicc, over MPICH.
//
// Each round measures MPICH, our runtime with ICRC, MPICH again, and our runtime
// without ICRC, because TCP checksums are not computed across a veth pair either. A
// ratio compares our result with the two of MPICH around it, or the one before it.
// The result is the median over all rounds; the difference of the two results of
// MPICH is the noise.
//
// MPICH has one node per rank, to avoid shared memory, and its UCX uses only the
// transport tcp (UCX_TLS) over the veth interface (UCX_NET_DEVICES). A runtime
// fails if the counters of the interface show that messages took another path. Both
// runtimes spin while they wait, and each rank is bound to a CPU.
//
// The profile ranks.pgo makes short messages about 5 % faster. It is created by
//
//	mkdir /tmp/p && go build -trimpath -o /tmp/p/mpich ./perf/peers/mpich
//	FABRICTEST_MPICH_PROFILE=/tmp/p /tmp/p/mpich -rounds 2 -slice 1s
//	go tool pprof -proto /tmp/p/*.prof > perf/peers/mpich/ranks.pgo
//
// If MPICH, its headers or a C compiler are missing, the command prints how to
// install them, and succeeds.
package main
