// Package conformance judges RDMA devices clause by clause. A [Case] is data and a
// body: an identifier that never changes, the clause that it checks, what the
// device must be able to do, and the defect that it is known to catch. A [Bench]
// gives the body two ways to touch the device: as an application over verbs, and as
// a raw peer on the device's wire that sets every bit it sends and sees every bit
// that comes. [Judge] turns what the body returns into one of six verdicts.
//
// The package opens nothing and knows no emulator: a [Lab] makes benches, in a
// simulated world, in network namespaces or around a real NIC, and the same cases
// run on all of them. What the bytes of a packet mean is for ./packet, what a
// protocol demands for the suites beside it.
//
// A bench belongs to the case that runs on it, and to the tasks that the case
// starts. Cases are independent of each other: a Lab may run several at once.
package conformance
