// Package tcpwire is TCP by hand, on a wire that carries whole IP packets: the TCP of a
// judge who wants to see every segment of a device and to choose his own. Which octets go
// into which segment, in which order, how often, with which sequence numbers and of which
// size, is the case's to say ([conformance.Segmented]); what it does not say, is done as a
// host does it.
//
// It is small and honest: both handshakes, sequence numbers and acknowledgements, a
// receive window that closes while nobody reads, retransmission with backoff and after
// three duplicate acknowledgements, FIN and RST in either direction, segments that come
// late, twice or overlapping. It refuses to be fast or polite: there is no congestion
// control, for its network is one cable; no window scaling, no SACK and no timestamps, so
// that a segment holds what the MSS says. It knows nothing of what is said over it, and
// shares nothing with any stack.
//
// A [Host] may be used by many goroutines; its own ends with Close. The connection itself
// (conn) has no clock, socket or goroutine: time and segments go in, segments come out.
package tcpwire
