// Package transport defines the environment of an MPI rank, and holds the parts of which its
// transports consist: a rail (a NIC with its completion queue), queue pairs and their send
// queues, receive queues, the table of posted work requests, rings in registered and in shared
// memory, and the packets that travel over them.
//
// Package mpi/carrier makes transports to peers of them, and launchers provide the [Env]. Package
// transport knows nothing of peers, sequence numbers, messages or connection setup.
package transport
