// Package bench provides benches for conformance cases: a device under test, a raw peer at the
// other end of its link, and a clock. [InSimulation] runs each case in a new simulation in virtual
// time; the same seed gives the same record. [InNamespaces] (Linux) opens the device on sockets in
// one network namespace and the peer on an Ethernet interface in another, in real time. [OnDevice]
// drives a device of another host through an agent, which serves a [LocalHost] or [EmulatedHost].
//
// It does not judge devices, and knows no protocol above UDP and TCP.
//
// # Packets in simulation
//
// Simulated devices send datagrams with some IP header fields, or byte streams, and cases see IP
// packets. These fields come from the device: addresses and UDP ports, traffic class with ECN, hop
// limit, IPv4 identification and DF, IPv6 flow label, the presence of a UDP checksum, and the
// payload. All others are generated as a socket would: no IPv4 options or fragments, valid
// checksums and lengths. Short packets may be padded, as in Ethernet frames. A case cannot send a
// packet that differs in generated fields: Send returns an error that wraps
// conformance.ErrBenchCannot. TCP segments are not simulated; a Read returns the data of one write
// of the device, up to the MSS.
//
// A hop limit of 0 cannot be sent. Every packet takes a microsecond.
//
// A lab may run many cases concurrently. A bench belongs to its case.
package bench
