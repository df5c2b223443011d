// Package control is the framed protocol between processes of this module: a launcher
// and its ranks, an agent and its clients, a live lab, a guest and a measuring host and
// their clients. A user of the package adds its own messages only.
//
// A frame is a length, a kind, a number and a body:
//
//	bytes   0..3  length of the rest, big endian
//	byte    4     kind
//	bytes   5..12 number: of a call, a rank, a signal, an exit code; big endian
//	bytes  13..   body
//
// The first frame of an end is a Hello with the version of the protocol, and versions
// must be equal. A receiver states which kinds it accepts, and the largest body of each.
// A frame that it does not accept is ErrProtocol, and ends the connection. An end that
// gives up sends a Close frame with the reason, if the peer still reads.
//
// A Conn writes frames directly, or queues them for one goroutine. Methods of a Conn may
// be called from several goroutines, but only one may read.
//
// The package neither connects nor authenticates.
package control
