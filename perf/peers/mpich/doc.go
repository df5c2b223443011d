// Command mpich measures the multi-rank runtime beside MPICH: two ranks in two network
// namespaces that a veth pair joins, the same two for both. It makes and removes them
// itself, and needs to be root, or a user who may make user namespaces.
//
//	go run -pgo=perf/peers/mpich/ranks.pgo ./perf/peers/mpich [-rounds N] [-slice TIME] [-json]
//
// What is measured is half a round trip of 8 B, 64 B and 4 KiB, the bandwidth of
// messages of 256 KiB and 4 MiB, and the rate of messages of 64 B, of which 64 are
// under way at a time. The ranks of both are the same program, call by call: ranks.go
// over package mpi, and c/ranks.c, which mpicc compiles, over MPICH.
//
// In each round MPICH's turn comes first, then ours with RoCE's ICRC, MPICH's again,
// and ours without it: TCP's checksum is not computed across a veth pair either. A
// ratio compares a turn of ours with the two of MPICH around it, or before it; the
// median over all rounds is what counts, and how much MPICH differs from itself within
// a round is the noise.
//
// MPICH has one node a rank, so that it does not use shared memory, and its UCX is
// given the transport tcp (UCX_TLS) over the veth interface (UCX_NET_DEVICES) and
// nothing else. The interface's counters are read before and after each turn: a
// runtime whose messages did not all cross the cable fails. Both spin while they
// wait, and each rank is kept to a processor of its own.
//
// The profile that ranks are built with is of themselves, and makes short messages some
// 5 % quicker; a program of yours can have one too. It is made anew by
//
//	mkdir /tmp/p && go build -trimpath -o /tmp/p/mpich ./perf/peers/mpich
//	FABRICTEST_MPICH_PROFILE=/tmp/p /tmp/p/mpich -rounds 2 -slice 1s
//	go tool pprof -proto /tmp/p/*.prof > perf/peers/mpich/ranks.pgo
//
// Where MPICH, its headers or a C compiler are missing, it says which and how they are
// installed, and succeeds: there is nothing to compare with.
package main
