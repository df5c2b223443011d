// Package launch starts one process per rank, like mpiexec, and supervises them over a control
// channel (package control): barriers, messages between ranks, results, heartbeats, state dumps,
// commands, output and exit codes. A started process connects to its launcher with Join:
//
//	conn, err := launch.Join()
//	if errors.Is(err, launch.ErrNotLaunched) { … run alone … }
//	conn.OnDump(program.Status)
//	err = program.Run(conn)
//	conn.Report(result)
//	conn.Close(err)
//
// The channel is for start-up, results and supervision, not for bulk data. The launcher
// forwards messages in order and loses none while both ranks run.
//
// The package does not interpret programs or jobs. To start a process in a namespace,
// the caller passes a Start function. Packages lab/nslab, lab/mpihost and lab/live
// use it; so do programs that run on a fabric.
//
// # Several hosts
//
// StartHosts starts a proxy on each host, as MPICH's Hydra does: a program that calls JoinProxy. The
// control channel of a proxy is its standard input and output, which a remote shell carries, so nothing
// listens on a port. A proxy starts the ranks of its host as a Group, forwards their messages and
// barriers to the proxies of other hosts by way of the launcher, and reports their output, events and
// outcomes. A proxy that loses its channel exits, and its ranks are killed.
//
// # Untrusted ranks
//
// A rank can fail, but cannot harm its launcher. The launcher checks the kind and the size of every
// frame, bounds all queues, disconnects a rank that does not read, and drops output beyond a limit.
// A rank that violates the protocol is Failed, and its Outcome names the violation. The same holds for
// proxies, which cannot speak for ranks of other hosts: a HostError names the violation.
//
// # Clean-up
//
// Each rank is the leader of a process group, which is killed when the rank exits.
// If the launcher dies, the kernel kills the ranks (Pdeathsig), a rank whose control
// channel closes exits, and a guard process kills the process groups. On Linux,
// processes that left their group are found by a variable in their environment.
//
// # Threads
//
// Pdeathsig applies when the forking thread exits, not the process. Each rank is therefore started
// on a separate OS thread that lives as long as the rank: see Spec.Start.
//
// A Group and a Conn may be used from several goroutines. Background goroutines of a
// Conn answer heartbeats and requests of the launcher, so a rank counts as hung only if its
// whole process does not run, as after SIGSTOP.
package launch
