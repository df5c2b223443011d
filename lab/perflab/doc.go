// Package perflab measures emulated NICs and the plain sockets below them: two
// hosts in two network namespaces, one process each, joined by a veth pair. Package
// perf decides what is measured and how it is compared; this package provides the
// hosts, devices and sockets. Device kinds are in deviceKinds, runs in plans.
//
// [Quick] and [IWARP] start a lab process in new namespaces (LabMain). It builds
// the fabric, measures the plain sockets itself, and starts a process for each host
// (HostMain). When one process ends, all do. A program that uses the package must
// call LabMain and HostMain if it is started with LabArgs and HostArgs.
//
// Each host, and each side of plain sockets, is bound to a CPU: the placement of
// two threads that wake each other by the scheduler makes a factor of three.
// Devices are open only while a program uses them.
//
// [ScalePlan.Run] measures what simulations cost by their size: CPU time and memory by the number of
// MPI ranks, queue pairs and hosts, the length of messages, and the number of packets. It simulates
// each point in a new process with one processor (ScaleMain), and fits a power law to each curve.
package perflab

// Arguments of a lab process and of a host process. They must not be changed.
var (
	LabArgs  = []string{"perf", "lab-process"}
	HostArgs = []string{"perf", "host-process"}
)
