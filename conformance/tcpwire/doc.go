// Package tcpwire is a TCP implementation on a wire that carries whole IP packets. It lets
// a case see each segment of a device, and control which octets it sends in which segment,
// in which order and how often ([conformance.RawStream]), as well as the initial sequence
// number and the MSS. Everything else follows RFC 9293.
//
// It has active and passive open, retransmission with backoff and after three duplicate
// acknowledgements, a receive window, FIN and RST in both directions, and reassembly. It
// has no congestion control, since the network is one link, and no window scaling, SACK or
// timestamps, which keeps the payload of a full segment at the MSS. It shares no code with
// other TCP implementations.
//
// A [Host] is safe for concurrent use; Close ends its goroutine. The connection itself
// (conn) has no clock, socket or goroutine: time and segments go in, segments come out.
package tcpwire
