// Package nslab runs scenarios in network namespaces, in real time. Each host is a
// namespace with one process, which opens an emulated NIC on sockets and runs one
// rank of the workload.
//
// [Run] starts one lab process for the scenario (LabMain), in new namespaces. The
// lab process builds the fabric, carries impaired cables through user-space
// switches, executes the timed faults, and starts a rank process in each host
// (RankMain). It is the init process of a PID namespace: when it dies, the kernel
// kills all rank processes and removes the namespaces.
//
// A program that uses the package must call LabMain or RankMain if its first
// argument is LabCommand or RankCommand.
package nslab

// The first argument of a lab process and of a rank process.
const (
	LabCommand  = "lab-process"
	RankCommand = "rank-process"
)
