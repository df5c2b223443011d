// Package control is the protocol on the socket between a launcher and a rank: frames,
// size limits, the handshake and a send queue. Packages launch and rank implement the
// two sides.
//
// A frame is a length, a kind, a number and a body:
//
//	bytes   0..3  length of the rest, big endian
//	byte    4     kind
//	bytes   5..12 number: a rank, a sequence number, a version; big endian
//	bytes  13..   body
//
// Every kind except Data is sent in one direction only, and has a maximum size. The
// receiver of an oversized or unexpected frame closes the connection.
package control

// Environment variables of a rank.
const (
	EnvControl = "FABRICTEST_CONTROL" // number of the inherited descriptor
	EnvRank    = "FABRICTEST_RANK"
	EnvSize    = "FABRICTEST_SIZE"
	EnvHost    = "FABRICTEST_HOST"
	// EnvGroup is a unique ID that the processes of a group and their children
	// inherit. The launcher uses it to find processes that left their process group.
	EnvGroup = "FABRICTEST_GROUP"
)
