// Package iwarp implements DDP and RDMAP between two peers: RFC 5041, RFC 5040, and
// the atomics and immediate data of RFC 7306. The layer below is not part of it: MPA over
// TCP in emu/softiwarp, reliable datagrams in emu/dgiwarp.
//
// A [Stream] is the state of one peer. Post queues work requests, and Output returns
// them as DDP segments that refer to registered memory. Input handles the peer's segments:
// it places their payload, completes receives, and queues responses for Output. A Stream has
// no socket, clock, goroutine, lock or randomness.
//
// The streams of a queue pair share its [Endpoint], those of a NIC its [Layer]. A Stream is
// small, because a datagram queue pair needs one for each peer. The only memory that a peer
// can make it allocate is the queue of its read requests, up to the IRD.
//
// The layer below must pass complete and verified segments to Input, in the order of
// sending, and must call Accepted when it has accepted segments of Output: only then do sends
// and writes complete. A stream that fails outputs a Terminate as its last segment.
//
// Segments of different messages are not interleaved, since the receiver could not tell
// which message a tagged segment belongs to. Work requests and read responses alternate,
// message by message.
//
// [Policy] has the decisions in which real devices differ from the RFCs.
package iwarp
