// Package wire has implementations of [conformance.Wire] on a host: the other end of the
// link of a device under test, which may be a NIC, or a kernel's or emulated device in a
// network namespace. Labs open them; cases use them through the interface.
//
//   - [Ethernet] is a packet socket. It sends any packet, and receives every packet that the
//     device sends.
//   - [UDP] is a set of ordinary UDP sockets, for hosts where packet sockets are not
//     permitted. It does not see and cannot set all fields; see [UDPLimitations].
//
// Both need Linux, and are safe for concurrent use; Close ends their goroutines. [TCPHost] is
// the TCP of a scripted peer on a wire, for cases that control its segments.
package wire
