// Package interop has two devices of different makers work together, and checks every
// byte: each operation that both have, asked for by either end, at sizes around the
// packet's, over IPv4 and IPv6, on queue pairs that were connected by hand and by the
// connection manager, whoever connects. Package kernel has the programs of others at
// the far end; here both ends are driven over verbs, the far one through an agent as a
// rule, so that there is no operation that no program uses.
//
// An exchange passes if both ends have seen every completion that they must, with
// what it must say, and no other; if the memory that was to be written holds what was
// sent, and not a byte around it has changed; and if what is refused, is. Who is wrong
// if it fails is not said: neither end is taken for right.
//
// It measures nothing, knows no emulator, and does not make packets be lost: whoever
// has the network between the ends does, and says so (see Suite.Lossy). A Suite runs one
// exchange at a time and owns what it makes on the devices; the devices are the
// caller's.
package interop
