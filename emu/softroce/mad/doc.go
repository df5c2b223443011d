// Package mad is the codec of the management datagrams that set connections
// up and tear them down: the 256-byte MADs of the communication management
// class (class 7, version 2) that travel on QP 1, as chapter 12 of the
// InfiniBand specification lays them out and RoCEv2 carries them.
//
// A MAD is a 24-byte Header and a 232-byte body. Each body is a struct with
// the same two methods: Append adds exactly BodyLen bytes in wire order, Parse
// reads them back and returns what follows. Neither allocates nor keeps a
// reference to its argument. Reserved bits are sent as zero and ignored when
// received. A field narrower than its Go type is cut to its width when sent.
//
// The package knows layouts and numbers only. Whether a message makes sense,
// and what to answer, is decided in package cm; sockets, queue pairs and time
// are nobody's business here. All functions are safe for concurrent use.
package mad
