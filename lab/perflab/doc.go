// Package perflab measures the emulated NIC beside bare sockets: two hosts in
// two network namespaces, one process each, joined by a veth pair. What is
// measured, in which order, and what it is worth is decided in package perf;
// this package brings the hosts, the devices and the limits.
//
// A host's process is this program again, started with Options.Command, which
// must call HostMain. It is bound to a processor of its own, and so are the two
// sides of bare sockets: where a scheduler puts two threads that wake each other
// makes a factor of three, and would else decide the comparison.
//
// Devices exist only while a program runs on them, so that no idle one disturbs
// what it is compared with. Nothing outlives Quick: hosts end with their
// control channel.
package perflab
