// Package p2p settles how messages between ranks travel: eagerly, or by rendezvous
// once sender and receiver have found each other.
//
// Three rendezvous protocols are there. RPUT: the sender says that it is ready
// (RTS), the receiver where to (CTS), the sender writes. RGET: the sender says
// where from (RTS), the receiver reads. Speculative: as RGET, but a receive that is
// posted before its message guesses that there will be one, and says where to
// (RTR), so that a sender who comes later can write at once; either side may start,
// and neither waits in vain.
//
// With two who can start, a rank must know which of its requests a word of the
// other is about. Between two ranks words arrive in order, and each send says
// exactly once that it is there: by its data, an RTS, or an RTRAck; so a receiver
// always knows. A receive says at most once that it is there: by an RTR when it is
// posted, or by an RTSAck when it meets an RTS without having sent one. The rules
// that keep a sender from taking one receive's RTR for another's are at the
// functions of speculate.go.
//
// An Engine is one rank's. It is pure: calls, arrivals and the time go in, words
// and transfers come out at the Fabric, and requests complete. It starts no
// goroutine, takes no lock and reads no clock, so that every order of events can be
// had again.
package p2p
