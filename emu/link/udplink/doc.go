// Package udplink is a link.PacketLink over one Linux UDP socket: the fastest
// way off a machine that needs no privilege. It batches system calls, lets the
// kernel cut (UDP_SEGMENT, GSO) and join (UDP_GRO) runs of datagrams, and shows
// and sets traffic class and hop limit of each.
//
// It refuses to be a transport: nothing is retransmitted, ordered or paced,
// and no byte of a payload is looked at. Nor does it enter namespaces: Open
// and Join work in the network namespace that the caller's thread was in when
// it called Open.
//
// The IPv4 identification matters to RoCEv2, whose ICRC covers it. The socket
// is never connected and always sets DF, for then Linux sends identification
// 0. A super-packet is cut into datagrams numbered 0, 1, 2, …: Config.PatchIPID is
// how its owner learns that. IPv6 has no such field. Received identifications
// are not visible to a UDP socket.
//
// A Link is not safe for concurrent use: its driver owns it. The exceptions are
// Close and Wake, which any goroutine may call, and WaitReadable, in which one
// goroutine may sleep while another drives. Send and Recv allocate nothing.
package udplink
