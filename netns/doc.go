// Package netns makes a fabric of a drawing: a network namespace for every host
// of a topology.Topology, joined by veth pairs, bridges and routers of the
// kernel, with the addresses, MTUs and routes that the drawing says. It starts
// processes in hosts, breaks links, and lets go of everything.
//
// It knows no protocol above IP, impairs nothing by itself (that is for whoever
// joins the cables it leaves spliced, see Options.Splice), and gives nothing a
// name outside the process: namespaces are held by descriptors, without mounts,
// so that whatever is killed, nothing stays behind.
//
// Building needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which an ordinary user has in a
// user namespace of his own: StartEnclosed starts a program there. Available
// says why not, and Probe what else the machine can do. Packages outside Linux
// get an error that says so.
//
// Three places of this package are meant for processes rather than goroutines:
// a program that imports it and is started under the name that StartEnclosed
// uses becomes the first process of an enclosure instead of itself (see
// StartEnclosed); a Fabric may be used from many goroutines; an NS too, and what
// is run in one with Do has an operating system thread to itself.
package netns
