// Package pcaplink captures the traffic of links in pcapng files: [Capture.Wrap] wraps a
// link.PacketLink, [Capture.WrapStreams] a link.StreamNet. A [Capture] holds many links,
// each as an interface of the file.
//
// Links carry datagrams, not packets. The IP and UDP headers in the file are made from
// the fields of the datagram: don't-fragment set, the UDP checksum filled in, the
// identification as in the datagram or from [Options.FindIPID]. Streams carry bytes, not
// segments; WrapStreams says how segments are made from them. Timestamps are the driver's
// time in nanoseconds since [Options.Epoch]; in a simulated world, where time is virtual,
// the same run writes the same file.
//
// A [File] is the pcapng file itself, which switches (package impair/ethernet) use too.
// [Trim] repairs the file of a writer that was killed. Package capture reads the files.
//
// An error of the file, such as a full disk, does not affect the traffic: the capture
// stops, and [Capture.Close] returns the error. Goroutines may share a Capture or a File.
package pcaplink
