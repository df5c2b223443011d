// Package rawbench measures what a machine's UDP gives at best, and what a
// link makes of it: a one-way stream in Gb/s and a ping-pong in µs. Stream and
// PingPong drive bare sockets with hand-written system calls and share no code
// with any link; LinkStream and LinkPingPong do the same work through the
// link's interface. Run both kinds alternately (see Compare) and report the
// ratio: on a shared machine a figure alone says little. This package's
// benchmarks do so for udplink, between two namespaces joined by a veth pair:
//
//	go test -run '^$' -bench . -benchtime 15x
//
// A measurement starts goroutines, owns the sockets or links it is given until
// it returns, and leaves nothing behind. It reads the machine's clock.
package rawbench
