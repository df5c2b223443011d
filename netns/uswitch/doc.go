// Package uswitch is an Ethernet switch in user space. One goroutine handles every frame, and a
// [FrameHandler] per port and direction may drop, delay, change, duplicate or record frames. It
// needs no kernel module (no netem) and no privilege beyond its network namespace. It parses IP,
// TCP and UDP headers only, to handle GSO packets. It is not a router and does not implement
// spanning tree.
//
// # Ports
//
// A port is a network interface, usually one end of a veth pair whose other end
// is in a host. A switch with two ports is a wire. With more, it learns MAC
// addresses and floods frames with unknown destinations.
//
// # GSO packets
//
// Between veth ends Linux passes up to 64 KiB of UDP or TCP payload as one GSO packet, unsegmented
// and without computed checksums. The switch receives GSO packets unsegmented (PACKET_VNET_HDR). If
// neither port has a FrameHandler it forwards them unsegmented, with one copy in and one out.
// Otherwise it segments them without copying, as the kernel would, with increasing IPv4
// identifications. The FrameHandler sees each frame, and consecutive frames that it forwards
// unchanged are coalesced again. Frames with CHECKSUM_PARTIAL are forwarded as such, and receivers
// accept them as valid; [Frame.ChecksumPartial] tells a FrameHandler.
//
// A packet socket of a kernel before 6.2 can neither receive nor send UDP GSO
// packets. There the sending interface must segment them, see [DisableGSO], and
// the switch does not coalesce datagrams.
//
// # Limits
//
// Delayed frames are limited in number and bytes ([Config.MaxDelayedFrames],
// [Config.MaxDelayedBytes]), as are learnt addresses. Frames beyond the limits are
// dropped, and every drop is counted by its cause ([Drops]).
//
// # Ownership
//
// A [Switch] is safe for concurrent use; its FrameHandlers are only called from the goroutine in
// [Switch.Run]. Forwarding does not allocate in steady state. An idle switch blocks.
package uswitch
