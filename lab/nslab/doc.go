// Package nslab runs scenarios in network namespaces, in real time: every host
// is a namespace with a process of its own, which has an emulated NIC on UDP
// sockets and runs one rank of the workload.
//
// Three kinds of processes take part. Whoever calls Run starts one lab process
// for the scenario, in namespaces of its own (LabMain): it builds the fabric,
// passes cables on which anything is to happen through the user-space switch,
// carries out the timed faults, and starts one rank process in every host
// (RankMain). The lab process is the first of a PID namespace: whichever process
// dies, the kernel takes down everything below it, and namespaces, which have no
// names, go with their last process.
//
// The program that uses the package must call LabMain and RankMain when it is
// started with LabCommand or RankCommand as its first argument.
package nslab

// What the program is started with to be a lab process or a rank process.
const (
	LabCommand  = "lab-process"
	RankCommand = "rank-process"
)
