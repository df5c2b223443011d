// Package carrier transports the messages and data of one MPI rank to and from all other
// ranks over verbs. Package mpi uses it below its point-to-point and window protocols;
// package carrier knows nothing of matching, communicators or windows.
//
// The transports to a peer are datagrams, which need no connection; a connection,
// established on first use and closed when idle; a ring in the peer's memory that is
// written with RDMA; and shared memory between ranks of one host. A Design selects among
// them. Over all of them a peer receives messages once and in order (reliable.go). Messages to
// a group of ranks are multicast in datagrams, and arrive once and in order as well
// (multicast.go). Package
// mpi/transport has the queue pairs and rings, package mpi/memory the registered memory.
//
// NICs move bulk data with RDMA where the transport has it; other transports send it in packets.
//
// Files are named by concern: conn*.go establish and close connections; rail.go (datagrams, SRQ)
// and ring.go (rings, shared memory) are the other transports; send*.go and receive.go move
// messages; transfer*.go are one-sided; acks.go and failover.go recover from losses.
//
// The caller holds the rank's lock in every method except Wait. The carrier calls its Upper
// from within its methods, and Upper may call the carrier.
package carrier
