// Package packet models packets for conformance cases: IPv4 and IPv6, UDP, Ethernet with
// ARP and neighbour discovery. The packages below it model the protocols above UDP and TCP.
//
// A header is a struct of pointers. A nil field gets its default value when building, and
// matches any value when comparing. The same value therefore describes a packet to send
// and an expected packet, also with wrong lengths or checksums. Parsing sets every field.
//
// A struct tag has the position of each field, next to its name, for comparison with the
// specification. One codec ([AppendFields], [ParseFields]) and one comparison
// ([DiffFields]) serve all headers.
//
// The package is written from the specifications, and shares no code with any emulated
// device: a shared error would not be found. It does no I/O, does not know what a device
// should do, and is not optimized for speed.
//
// Parsing accepts any bytes: it returns the fields it could parse, and an error for the rest.
// Results do not alias the input unless a comment says so. Methods do not change their receivers.
package packet
