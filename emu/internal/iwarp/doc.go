// Package iwarp is DDP and RDMAP (RFC 5041, RFC 5040, and the atomics and
// immediate data of RFC 7306) between two peers: what is left of iWARP when the
// layer below, MPA over TCP or a reliable datagram, is taken away.
//
// A [Stream] is one peer. Work requests go in by Post and come out of Output as
// DDP segments that point into registered memory; the peer's segments go in by
// Input, and what they carry is in memory, in completions or in answers that
// Output gives later. It has no socket, clock, goroutine, lock or randomness, and
// one owner.
//
// What the streams of a queue pair share is in its [Endpoint], what those of a NIC
// share in its [Layer]: a Stream itself is a few words, so that a datagram socket
// can have one for each of many peers. Nothing that a peer sends makes it grow
// but the queue of its read requests, once, to the depth that was agreed.
//
// The layer below must give Input the peer's segments whole, verified and in the
// order in which they were sent, and must say with Taken when it has accepted
// those that Output gave: only then does a send or a write complete. It also
// carries, as the last of all, the Terminate that a stream ends with when it
// ends in error.
//
// Messages are never mixed: all segments of one leave before the first of the
// next. DDP delivers messages in the order in which they were sent, and a peer
// could not tell otherwise which one a tagged segment ends. So what answers a
// read and what the program posts take turns, one message each.
package iwarp
