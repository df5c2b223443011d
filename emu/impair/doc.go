// Package impair is what can happen to a packet on its way: lost, duplicated,
// delayed, reordered, corrupted, cut short, marked, slowed down; by chance, at
// the rates a [Spec] names, or exactly, as an [Event] says ("drop PSN 7 of flow
// 0x11 the second time it is seen").
//
// A [Pipe] applies both to one direction of one link. It is a plain value: it
// keeps no time (now is an argument), owns no random source (a [Source] for each
// kind of impairment is handed in) and knows no protocol (a [Dissector] is). So
// the simulated links and a switch on real sockets share it.
//
// What is impaired is the UDP payload and the fields of a [link.Datagram]. A
// lower layer's checksum (Ethernet FCS, IPv4 header) is taken to be right again
// after an impairment, as it is when a switch, not a cable, damages a packet:
// only end-to-end checks such as the ICRC can find out.
//
// Every enabled kind draws the same count of random numbers for each packet
// offered, from a stream of its own and whatever happened to the packet before.
// Thus switching one kind on or off does not change what the others do.
//
// A Pipe is not safe for concurrent use; its driver owns it.
package impair
