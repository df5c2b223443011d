// Package control is the language that a launcher and the processes it started
// speak on the socket between them: frames, their limits, and a queue of frames
// on their way out. It starts nothing and knows no policy: what a frame means is
// for package launch (the parent) and package rank (the child) to say.
//
// A frame is a length, a kind, a number and a body:
//
//	bytes   0..3  length of what follows, big endian
//	byte    4     kind
//	bytes   5..12 number: a rank, a sequence number, a version; big endian
//	bytes  13..   body
//
// Every kind goes one way only but Data, and has a limit of its own. Whoever
// reads a frame that is too long, or of a kind that may not come this way, has
// met a peer that is confused or hostile, and ends the conversation.
package control

// The environment in which a launcher starts a rank.
const (
	EnvControl = "FABRICTEST_CONTROL" // number of the inherited descriptor
	EnvRank    = "FABRICTEST_RANK"
	EnvSize    = "FABRICTEST_SIZE"
	EnvHost    = "FABRICTEST_HOST"
	// EnvGroup marks every process of one group, and what they start in turn, so
	// that those which leave their process group are found too.
	EnvGroup = "FABRICTEST_GROUP"
)
