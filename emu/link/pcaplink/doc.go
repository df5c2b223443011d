// Package pcaplink writes what passes a link to a pcapng file that Wireshark
// opens: a decorator around any link.PacketLink, one around any link.StreamNet,
// and a [Capture] that takes the packets of many links as interfaces of one file.
//
// A link carries datagrams, not packets; the IP and UDP headers in the file are
// made from what the datagram says of itself, as they were or would have been on
// the wire: don't-fragment set, the UDP checksum filled in, identification as
// given, or found ([Options.FindID]). Timestamps are the driver's own time, to the
// nanosecond, counted from [Options.Epoch]; in a simulated world that is virtual
// time, and the same run writes the same file, byte for byte.
//
// A stream carries bytes, not segments: see [Capture.WrapStreams] for what is made
// up where there is nothing to see.
//
// A [File] is the pcapng file itself. Switches use it too (package impair/ethernet).
// [Trim] repairs a file whose writer was killed; package capture reads such files.
//
// A capture that fails (a full disk) does not disturb the traffic: writing stops,
// and [Capture.Close] says why. A Capture may be shared by links that different
// goroutines drive, and so may a File; a wrapped link is as safe as the link it wraps.
package pcaplink
