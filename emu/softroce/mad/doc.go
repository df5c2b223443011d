// Package mad is the codec of the MADs of the communication management class (class 7,
// version 2), which QP 1 sends to establish and release connections: InfiniBand
// specification, chapter 12. Package cm uses it.
//
// A MAD is a 24-byte Header and a 232-byte body. Each body is a struct with two methods:
// Append appends BodyLen bytes in wire order, Parse decodes them and returns the bytes that
// follow. Neither allocates or keeps a reference to its argument. Reserved bits are sent as
// zero and ignored on receipt. Fields are truncated to their width on the wire.
//
// The package checks lengths only; package cm checks messages and answers them. All
// functions are safe for concurrent use.
package mad
