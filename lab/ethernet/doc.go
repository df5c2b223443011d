// Package ethernet applies impairments to Ethernet frames: an [Impairer] is an impair.Pipe as a
// uswitch.FrameHandler, a [StreamImpairer] executes events on TCP streams, a [Tap] writes frames to
// a [Capture], and a [Filter] implements partitions. The same configuration, seed and sequence of
// packets give the same random decisions as in the simulation.
//
// # Protocols
//
// UDP datagrams get all impairments of a Pipe, as in simulation. After a change of payload, length
// or ECN bits, the headers are corrected: lengths, the IPv4 header checksum, and the UDP checksum
// unless it is 0. Only end-to-end checks such as the ICRC detect the change.
//
// Other IP packets are dropped, delayed, duplicated, reordered, marked and
// rate-limited like datagrams, but events cannot match them by flow or sequence
// number. Corruption and truncation depend on the protocol:
//
//   - TCP: a bit is inverted in the data, never in the header, and the checksum
//     is corrected, so that a check above TCP (the CRC of MPA) must detect it,
//     as in simulation. A segment without data is not corrupted. A truncated
//     segment loses FIN and PSH; the rest is retransmitted.
//   - Others, and fragments: bits are inverted and bytes cut without correcting
//     inner checksums.
//
// ARP, IPv6 neighbour discovery, multicast group membership and non-IP frames
// always pass, because hosts need them to reach each other.
//
// # Ownership
//
// An Impairer, a Filter and a Tap belong to their switch and are not safe for
// concurrent use; read them in uswitch.Switch.WhileQuiesced or after the switch
// has ended. A Capture may be shared by the taps of many switches.
package ethernet
