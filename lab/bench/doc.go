// Package bench makes benches for conformance cases of the emulated devices: a
// device of a provider, a raw peer at the other end of its cable, and time. There
// are two labs of the same shape. [InSimulation] has a world of its own for every
// case, in virtual time, and the same seed gives the same record. [InNamespaces]
// (Linux) has the device on sockets in a network namespace, the peer on an Ethernet
// interface in another, and real time.
//
// It judges nothing: what a case may expect is the case's affair. And it knows no
// protocol above UDP and TCP.
//
// # What a simulated wire makes up
//
// Simulated devices send and receive datagrams with a few fields of their IP
// headers, and byte streams. A case sees IP packets all the same. Of what it sees,
// these are the device's own: addresses and UDP ports, traffic class with ECN, hop
// limit, IPv4 identification and DF, IPv6 flow label, whether UDP has a checksum, and
// its payload. The rest is made up, as the sockets of the same device make it: IPv4
// without options, never fragmented; checksums that are right; lengths that agree. A
// packet may be padded to the least that Ethernet carries, as all frames are.
// Nothing that a case finds out about these says anything of a simulated device,
// and a packet that differs in them cannot be sent: Send refuses it with an error
// that wraps conformance.ErrCannot. TCP has no segments of the device's own making
// either; a Read returns what the device wrote at once, up to the MSS.
//
// Hop limit 0 cannot be sent, since a datagram says by it that it has none. Every
// packet takes a microsecond from end to end, however long it is.
//
// A lab may run many cases at once. A bench belongs to its case.
package bench
