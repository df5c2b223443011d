// Package packet is the judge's own model of what is on a wire: IPv4 and IPv6, UDP,
// Ethernet with ARP and neighbour discovery, and capture files. The packages below
// it know the protocols above UDP.
//
// A header is a struct of pointers. Where one is nil, building fills in what an
// ordinary packet has there, and comparing does not look: the same value says what
// to send and what to expect. So a case writes down what it is about, and can write
// anything down, lengths and checksums that lie included. Parsing sets every field.
//
// A struct tag says where in its header a field is, so that the layout stands
// beside the name and can be held against the specification line by line; one codec
// ([AppendFields], [ParseFields]) serves all of them, and one comparison
// ([DiffFields]).
//
// The package is written from the specifications alone, and shares no code with any
// stack: an error that a judge has in common with the judged is never found. It
// sends and receives nothing, has no opinion on what a device ought to do, and makes
// no attempt to be fast.
//
// Parsing copes with any bytes: it returns what could be read, and an error that
// says what could not. What is parsed refers to no memory of the caller unless its
// comment says so. Values are not changed by their methods and may be shared;
// a capture file belongs to one goroutine.
package packet
