// Package rd implements the reliable-datagram layer of datagram-iWARP, between DDP and UDP.
// It delivers DDP segments to any number of peers exactly once and in order for each peer,
// despite loss, duplication, reordering and restarts of either side, or reports that it
// failed. Section 7 of docs/spec/datagram-iwarp.md specifies the protocol.
//
// It does not interpret segments, has no socket, clock or source of randomness, and
// guarantees no order between different peers. The time is an argument of every call.
//
// A Layer serves all queue pairs of a NIC. There is no connection setup: a Peer is created
// with the first segment to it or from it, and removed after it was idle for so long that none
// of its packets can be in the network. An idle peer needs a [Peer] and an entry in two
// tables. Unacknowledged and out-of-order segments are in pools that all peers share, and
// everything is limited (see [Limits]).
//
// A Layer has one owner, which calls it like this:
//
//	l.Input(now, src, &packet, marked)   for every intact packet of its kinds
//	l.Tick(now)                          when l.Deadline() has passed
//	for { e, ok := l.Next() }            after each of these, until !ok
//	for { p, ok := l.Output(now, buf) }  until !ok, or the link is full
//
// In the steady state nothing is allocated.
package rd
