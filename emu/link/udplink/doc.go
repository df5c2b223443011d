// Package udplink is a link.PacketLink over a Linux UDP socket, without privileges. It
// batches system calls, uses GSO (UDP_SEGMENT) and GRO (UDP_GRO), and sets and reports
// the traffic class and hop limit of each datagram. softroce and dgiwarp use it.
//
// It does not retransmit, order or pace, and does not read payloads. Open and Join work in
// the network namespace that the caller's thread was in at Open.
//
// RoCEv2's ICRC covers the IPv4 identification. Linux sends identification 0 from a socket
// that is not connected and sets DF, and 0, 1, 2, … for the segments of a GSO super-packet,
// for which Config.PatchIPID corrects the payloads. A UDP socket does not see received
// identifications.
//
// A Link is not safe for concurrent use, except that any goroutine may call Close and Wake,
// and one goroutine may be in WaitReadable while another one sends and receives. Send and
// Recv do not allocate.
package udplink
