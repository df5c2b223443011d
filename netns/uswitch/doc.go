// Package uswitch is an Ethernet switch in user space: every frame of every port
// passes through one goroutine, where a [Path] may lose, delay, change, repeat or
// record it. It needs no module of the kernel (no netem), no privilege beyond the
// network namespace that its ports are in, and knows no protocol above IP, TCP and
// UDP headers, which it reads to cut and join super-packets. What a Path does is
// the business of whoever brings it. It is no router and speaks no spanning tree.
//
// # Ports
//
// A port is a network interface, as a rule one end of a veth pair whose other end
// is a host's. A switch of two ports is a wire: what enters one leaves the other.
// With more, it learns which addresses are behind which port and floods what it
// does not know, as switches do.
//
// # Super-packets
//
// Between veth ends Linux passes up to 64 KiB of a UDP or TCP stream as one
// super-packet, uncut, its checksums not computed. The switch takes them as they
// are (PACKET_VNET_HDR). Where neither port has a Path they go on whole, and cost
// one copy in and one out. Before a Path they are cut, without copying, into the
// frames that the kernel would have cut them into, IPv4 identifications counted
// up from the first; each frame meets its own fate; and neighbours that nothing
// happened to are joined again on their way out. Frames whose checksum the kernel
// left to be computed are passed on as such, so that a receiver takes them as
// valid; [Frame.Partial] says so to a Path.
//
// A kernel before 6.2 can neither show UDP super-packets to a packet socket nor take
// them from one. There the sending interface must be told to cut, with
// [DisableGSO], and the switch joins no datagrams.
//
// # Limits
//
// What is held for later is bounded in frames and bytes ([Config.MaxHeldFrames],
// [Config.MaxHeldBytes]), as are the addresses learnt. What does not fit is lost,
// and every loss is counted by its cause ([Drops]).
//
// # Ownership
//
// A [Switch] may be used from any goroutine; its Paths are only ever called from
// the one that is in [Switch.Run]. Frames cost no allocation once buffers have
// grown to what the traffic needs. When nothing happens the switch sleeps.
package uswitch
