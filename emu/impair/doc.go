// Package impair impairs packets: it drops, duplicates, delays, reorders,
// corrupts, truncates, ECN-marks and rate-limits them, at random with the rates
// of a [Spec], or exactly as an [Event] says ("drop PSN 7 of flow 0x11 at its
// second transmission").
//
// A [Pipe] applies both to one direction of one link. It reads no clock (now is
// an argument), has no random generator (a [Source] per kind of impairment is
// passed in) and knows no protocol (a [Dissector] does). The simulated links
// and the user-space switch share it.
//
// A Pipe impairs the UDP payload and the fields of a [link.Datagram].
// Lower-layer checksums (Ethernet FCS, IPv4 header) are taken to be correct
// afterwards, as when a switch damages a packet: only end-to-end checks such as
// the ICRC detect it.
//
// Every enabled kind draws the same count of random numbers for each packet,
// from its own stream, whatever the other kinds do to the packet. Enabling or
// disabling one kind does not change the decisions of the others.
//
// A Pipe is not safe for concurrent use; its driver owns it.
package impair
