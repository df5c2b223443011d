// Package engine implements an iWARP NIC as a state machine: queue pairs over RDMAP, DDP
// and MPA. Its inputs are work requests, octets of TCP streams and the time; its outputs are
// octets to write, completions, events and the next deadline. It has no socket, clock,
// goroutine, lock or randomness. emu/softiwarp drives it over real or simulated TCP.
//
// A [Conn] is one TCP stream. It starts as MPA initiator or responder, gets a queue pair,
// and carries the queue pair's [iwarp.Stream] in an [mpa.Conn] until it is closed or fails.
//
// All queue pairs are reliable connected; iWARP has no other type. Their states are those
// of the RDMA Consortium's verbs, mapped to the closest states of libibverbs:
//
//	RESET, INIT  Idle       receives may be posted; waits for a connection
//	RTS          RTS        connected; entered only by connecting
//	SQD          Closing    posted requests are completed, then the stream is closed
//	SQE          Terminate  failed; a Terminate is being sent
//	ERR          Error      not connected; work requests are flushed
//
// There is no RTR and no RNR retry: a Send without a receive ends the connection.
//
// [Policy] has the decisions in which real devices differ. Its zero value follows the RFCs.
package engine
