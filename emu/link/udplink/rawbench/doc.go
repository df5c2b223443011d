// Package rawbench compares links with bare UDP sockets: the goodput of a one-way stream
// and the latency of a ping-pong. Stream and PingPong use bare sockets and share no code
// with links; LinkStream and LinkPingPong do the same work through a link.PacketLink.
// Compare runs both alternately and returns the ratio: on a shared machine absolute
// results vary. The benchmarks of this package compare udplink on a veth pair between two
// namespaces:
//
//	go test -run '^$' -bench . -benchtime 15x
//
// A measurement owns the links that it is given until it returns.
package rawbench
