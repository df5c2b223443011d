// Package capture reads recordings of packets, pcap and pcapng, and says what
// RDMA did in them: RoCEv2 with the connection manager on QP 1, and iWARP with
// the TCP streams put together. Whatever else is on the wire gets one short
// line.
//
// It decodes packet by packet, as they lie in the file, and remembers enough of
// each flow to mark what a person looks for: sequence numbers seen before,
// missing or late, checksums that are wrong, refusals and errors that peers
// report to each other. What it remembers is bounded, whatever the file holds;
// flows beyond that are forgotten, the longest unused first. A damaged file
// gives what came before the damage, and then a [DamageError] with its place.
//
// It refuses to know terminals, files or colours, and to judge: what it marks
// may be quite in order. A [Stream] has one owner, and what [Stream.Next]
// returns is valid until the next call.
package capture
