// Package engine is an iWARP NIC as a plain value: MPA, DDP and RDMAP behind
// queue pairs. Work requests, the octets of TCP streams and the time go in;
// octets to write, completions, events and the next deadline come out. It has no
// socket, clock, goroutine, lock or randomness of its own and one owner, who may
// be a simulated world or a driver over real TCP.
//
// A [Conn] is one TCP stream. It starts up as initiator or responder, gets a queue
// pair, carries the queue pair's [iwarp.Stream] in an [mpa.Conn] until one side
// closes or something fails, and never comes back.
//
// Queue pairs are reliable and connected; iWARP has no other kind. Their states
// are those that the RDMA Consortium's verbs define, by the names that verbs
// have for something near:
//
//	RESET, INIT  Idle       receives may be posted; waits for a connection
//	RTS          RTS        connected; only a connection leads here
//	SQD          Closing    what was posted is still carried out, then the stream ends
//	SQE          Terminate  failed: the peer is being told why
//	ERR          Error      without a connection; what is posted is flushed
//
// There is no RTR, and a peer that is not ready is not waited for: a send that
// finds no receive ends the connection.
package engine
