// Package p2p implements point-to-point messages between ranks: small messages are sent
// eagerly, large ones by a rendezvous protocol.
//
// There are three rendezvous protocols. RPUT: the sender sends an RTS (ready to send), the
// receiver replies with a CTS that has the address of its buffer, and the sender writes.
// RGET: the RTS has the address of the send buffer, and the receiver reads. Speculative:
// like RGET, but a receive that is posted before its message arrives predicts a large
// message and sends an RTR (ready to receive) with its address; a sender that finds the
// RTR writes at once. Either side may start, and neither waits for the other to do so.
//
// With two sides that may start, each must know which request a control message is about. Control
// messages between two ranks arrive in order, and each send announces itself exactly once: by its
// data, an RTS or an RTRAck. A receive announces itself at most once: by an RTR when it is posted,
// or by an RTSAck when it matches an RTS without having sent an RTR. The rules that keep a sender
// from using an RTR for the wrong receive are documented in speculate.go and predict.go.
//
// An Engine belongs to one rank. It starts no goroutine, takes no lock and reads no clock:
// calls, messages and the time go in, messages and transfers go out through a Transport.
// Package mpi drives it; tests replay any order of events.
package p2p
