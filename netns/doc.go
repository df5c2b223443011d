// Package netns builds the fabric of a topology.Topology from the Linux kernel:
// a network namespace per host, connected by veth pairs, bridges and routers,
// with the addresses, MTUs and routes of the topology. It starts processes in
// hosts and sets links down and up. Package lab/nslab runs scenarios on it.
//
// It implements no protocol above IP and impairs no packets; user-space cables
// do (see Options.UserCable). Namespaces are held by file descriptors, without
// names and mounts: the kernel removes everything when the process dies.
//
// Build needs CAP_SYS_ADMIN and CAP_NET_ADMIN. StartUnshared gives them to an unprivileged user, in
// a user namespace. Available reports why namespaces cannot be created, and Probe which features
// the machine has. On other systems than Linux every call fails.
//
// A Fabric and an NS are safe for concurrent use. Do runs on a dedicated OS
// thread. Processes are started from threads that live on, because the parent
// death signal is sent when the thread that forked ends.
package netns
