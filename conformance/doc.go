// Package conformance checks RDMA devices against the clauses of their specifications.
// A [Case] checks one clause: it has a stable identifier, a citation, the capabilities it
// needs, and the defects of an emulated device that it is known to detect. A [Bench]
// gives the case the device under test as a verbs context, and a scripted peer at the
// other end of the device's link that controls and sees every bit. [Judge] runs a case
// and returns one of six verdicts.
//
// A [Lab] makes benches: in the simulator, in network namespaces or around a real NIC.
// The same cases run on all of them. Packet formats are in ./packet; the cases of each
// protocol are in the suites, for example ./roce and ./iwarp.
//
// A bench belongs to one case and the tasks that it starts. Cases are independent of each
// other, and a Lab may run several at once.
//
// The directory ledger lists the requirements of the specifications ([Ledger]), and the known
// violations of devices with reasons ([DeviationsOf]).
package conformance
