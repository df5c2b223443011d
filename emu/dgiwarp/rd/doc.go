// Package rd is the reliable-datagram layer of datagram-iWARP: below DDP, above
// UDP. It takes DDP segments for any number of peers and carries each to its
// peer exactly once, in the order in which they were sent to that peer, through
// loss, duplication, reordering and the restart of either side; or it says that
// it could not.
//
// It refuses to know what a segment means, to reach a socket, a clock or a
// source of randomness, and to promise anything between different peers. The
// time comes in with every call. Section 7 of docs/spec/datagram-iwarp.md
// specifies what it says on the wire.
//
// A Layer serves all queue pairs of a NIC. There is no connection to set up: a
// Peer appears with the first segment for it or from it, and goes when it has
// been silent for long enough that nothing of it can be under way. What a peer
// needs while nothing is under way is a [Peer] and a place in two tables;
// segments that wait for acknowledgement or for a gap to close are in pools that
// all peers share, and everything has a bound (see [Limits]).
//
// A Layer has one owner, who calls it like this:
//
//	l.Input(now, src, &packet, marked)   for every intact packet of its kinds
//	l.Tick(now)                          when l.Deadline() has passed
//	for { e, ok := l.Next(now) }         after each of these, until !ok
//	for { p, ok := l.Output(now, buf) }  until !ok, or the link is full
//
// Nothing allocates once peers exist and the pools have grown to what is needed.
package rd
