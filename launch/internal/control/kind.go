package control

import "fmt"

// Kind says what a frame is about.
type Kind uint8

// What a rank sends.
const (
	Hello        Kind = 1 + iota // the first frame; Num is the version, the body a Greeting
	Pong                         // Num is that of the Ping
	Barrier                      // the rank has come to barrier Num, 1 for the first
	Mark                         // an event for the record
	Sample                       // figures for the record, as JSON
	Report                       // the result, once
	DumpReply                    // what the rank is at; Num is that of the Dump
	CommandReply                 // Num is that of the Order; the body an error, empty if done
	Bye                          // the last frame; the body says why it ends early, empty if done
)

// What the launcher sends.
const (
	Welcome     Kind = 65 + iota // the body is Terms
	Job                          // follows Welcome; opaque
	Ping                         // asks for a Pong with the same Num
	BarrierDone                  // barrier Num is complete
	RankEnded                    // rank Num has ended; no more messages come from it
	Dump                         // asks for a DumpReply with the same Num
	Command                      // tells the rank to do something
	ByeAck                       // Bye has been heard
	Reject                       // the rank cannot take part; the body says why
)

// Data is a message between ranks. Num is the rank it goes to on the way to the
// launcher, and the one it comes from on the way to the rank.
const Data Kind = 33

// Limits of bodies that nobody needs to choose.
const (
	MaxHello   = 4 << 10
	MaxMark    = 4 << 10
	MaxSample  = 64 << 10
	MaxDump    = 256 << 10
	MaxCommand = 64 << 10
	MaxReason  = 64 << 10
	MaxJob     = 64 << 20
)

// FromRank is what may come from a rank that has been told these terms.
func RankLimits(t WelcomeBody) Limits {
	return Limits{
		Pong: 0, Barrier: 0, Data: t.MaxMessage, Mark: MaxMark, Sample: MaxSample, Report: t.MaxReport,
		DumpReply: MaxDump, CommandReply: MaxReason, Bye: MaxReason,
	}
}

// FromLauncher is what may come to a rank that has been told these terms.
func LauncherLimits(t WelcomeBody) Limits {
	return Limits{
		Data: t.MaxMessage, Ping: 0, BarrierDone: 0, RankEnded: 0, Dump: 0, Command: MaxCommand, ByeAck: 0, Reject: MaxReason,
	}
}

var kindNames = map[Kind]string{
	Hello: "hello", Pong: "pong", Barrier: "barrier", Mark: "mark", Sample: "sample", Report: "report",
	DumpReply: "dump reply", CommandReply: "order reply", Bye: "bye", Data: "data", Welcome: "welcome", Job: "job",
	Ping: "ping", BarrierDone: "release", RankEnded: "gone", Dump: "dump", Command: "order", ByeAck: "farewell", Reject: "refuse",
}

// String names the kind, or shows its number.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("unknown kind 0x%02x", uint8(k))
}
