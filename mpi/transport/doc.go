// Package transport holds the parts of which the transports of a rank consist: a rail (a NIC
// with its completion queue), queue pairs and their send queues, receive queues, the table of
// posted work requests, rings in registered and in shared memory, and the packets that travel
// over them.
//
// Package mpi/carrier uses it. Package transport knows nothing of peers, connections
// protocols, sequence numbers or messages.
package transport
