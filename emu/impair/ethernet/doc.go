// Package ethernet applies impairments to real frames: it makes an impair.Pipe a
// Path of a user-space switch (package netns/uswitch), writes frames to captures,
// and keeps addresses apart. The same configuration, seed and sequence of packets
// give a packet the same fate here as in a simulated world ([Sources]).
//
// # What is impaired
//
// UDP datagrams meet everything that a Pipe can do, as they do in simulation. When
// payload, length or ECN bits have changed, the headers are put right: lengths,
// IPv4's header checksum, and the UDP checksum, which stays 0 where it was 0. Only
// end-to-end checks such as the ICRC find out.
//
// Every other IP packet is lost, delayed, repeated, reordered, marked and slowed
// down like a datagram, but belongs to no flow and has no sequence number that an
// exact event could name. Corruption and truncation are those of the protocol:
//
//   - TCP: a bit is inverted in the data, never in the header, and the checksum
//     put right, so that the stream carries damaged bytes, as it does in
//     simulation, and a check above TCP (the CRC of MPA) has to find them. With
//     the checksum wrong the packet would merely be lost, which is what loss is
//     for. A segment without data passes whole. One that is cut short keeps its
//     beginning, without FIN and PSH; the rest comes with a retransmission.
//   - Others, and fragments: bits are inverted and bytes cut off as they are; a
//     checksum inside is then wrong.
//
// ARP, IPv6 neighbour discovery, multicast group membership and whatever is not IP
// always pass: a fabric whose hosts cannot find each other tests nothing.
//
// # Ownership
//
// A Path, a Filter and a Tap belong to the switch that they are part of and are
// not safe for concurrent use; look at them in uswitch.Switch.Quiesced, or when the
// switch has ended. A Capture may be shared by the taps of many switches.
package ethernet
