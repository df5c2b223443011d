// Package perflab measures emulated NICs beside the bare sockets that they stand
// on: two hosts in two network namespaces, one process each, joined by a veth
// pair. What is measured, in which order, and what it is worth is decided in
// package perf; this package brings the hosts, the devices and the limits. A kind
// of device is an entry of kinds, a run one of plans.
//
// Quick and IWARP start a process of this program in namespaces of its own (LabMain),
// which builds the fabric, plays the bare sockets itself, and starts a process
// for each host (HostMain). Whichever of them ends, the others do, and nothing
// is left. The program that uses the package must call LabMain and HostMain when
// it is started with LabArgs and HostArgs.
//
// Each host is bound to a processor of its own, and so are the two sides of
// bare sockets: where a scheduler puts two threads that wake each other makes a
// factor of three, and would else decide the comparison. Devices exist only
// while a program runs on them, so that no idle one disturbs what it is compared
// with.
package perflab

// Arguments of a process of the lab. HostArgs and LabArgs are not to be changed.
var (
	LabArgs  = []string{"perf", "lab-process"}
	HostArgs = []string{"perf", "host-process"}
)
