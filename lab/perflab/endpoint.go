package perflab

import "net/netip"

// RawEndpoint says where a measurement of bare sockets opens a socket.
type RawEndpoint struct {
	// NetNS is the descriptor of the network namespace to open it in; 0 means
	// the process's own.
	NetNS int
	// Addr is the address to bind. Port 0 lets the kernel choose.
	Addr netip.AddrPort
	// CPU is the processor, counted from 1, on which the goroutine of the socket runs; 0
	// means any. Wake-ups between processors take three times as long as on one, so compare
	// only measurements that are bound alike.
	CPU int
}
