// Package netns makes a fabric of a drawing: a network namespace for every host
// of a topology.Topology, joined by veth pairs, bridges and routers of the
// kernel, with the addresses, MTUs and routes that the drawing says. It starts
// processes in hosts, breaks links, and lets go of everything.
//
// It knows no protocol above IP, impairs nothing by itself (that is for whoever
// joins the cables it leaves spliced, see Options.UserCable), and gives nothing a
// name outside the process: namespaces are held by descriptors, without mounts,
// so that whatever is killed, nothing stays behind.
//
// Building needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which an ordinary user has in a
// user namespace of his own: StartUnshared starts a program there. Available
// says why not, and Probe what else the machine can do. Outside of
// Linux everything fails, and says so.
//
// A Fabric and an NS may be used from many goroutines. What Do runs has an
// operating system thread to itself; processes are started from threads that
// stay, because they die with the thread that started them.
package netns
