package control

import "fmt"

// Kind is the type of a frame.
type Kind uint8

// Frames from a rank.
const (
	Hello        Kind = 1 + iota // the first frame; Num is the version, the body a HelloBody
	Pong                         // Num is that of the Ping
	Barrier                      // the rank entered barrier Num, 1 for the first
	Mark                         // text of a launch.Marked event
	Sample                       // JSON of a launch.Sampled event
	Report                       // the result; at most one
	DumpReply                    // state of the rank; Num is that of the Dump
	CommandReply                 // Num is that of the Command; the body an error, empty on success
	Bye                          // the last frame; the body an error, empty on success
)

// Frames from the launcher.
const (
	Welcome     Kind = 65 + iota // the body is a WelcomeBody
	Job                          // follows Welcome; the body is Spec.Job
	Ping                         // requests a Pong with the same Num
	BarrierDone                  // all ranks entered barrier Num
	RankEnded                    // rank Num has ended; no more messages of it will follow
	Dump                         // requests a DumpReply with the same Num
	Command                      // requests a CommandReply with the same Num
	ByeAck                       // acknowledges Bye
	Reject                       // the rank cannot join; the body is the reason
)

// Data is a message between ranks. Num is the destination in frames to the launcher and
// the source in frames from the launcher.
const Data Kind = 33

// Maximum sizes of bodies that are not configurable.
const (
	MaxHello   = 4 << 10
	MaxMark    = 4 << 10
	MaxSample  = 64 << 10
	MaxDump    = 256 << 10
	MaxCommand = 64 << 10
	MaxReason  = 64 << 10
	MaxJob     = 64 << 20
)

// RankLimits returns the limits of frames from a rank that received welcome t.
func RankLimits(t WelcomeBody) Limits {
	return Limits{
		Pong: 0, Barrier: 0, Data: t.MaxMessage, Mark: MaxMark, Sample: MaxSample, Report: t.MaxReport,
		DumpReply: MaxDump, CommandReply: MaxReason, Bye: MaxReason,
	}
}

// LauncherLimits returns the largest body of each kind of frame that the launcher sends to a
// rank after a welcome; 0 means that frames of the kind have no body.
func LauncherLimits(welcome WelcomeBody) Limits {
	return Limits{
		Data: welcome.MaxMessage, Ping: 0, BarrierDone: 0, RankEnded: 0, Dump: 0, Command: MaxCommand, ByeAck: 0, Reject: MaxReason,
	}
}

var kindNames = map[Kind]string{
	Hello: "hello", Pong: "pong", Barrier: "barrier", Mark: "mark", Sample: "sample", Report: "report",
	DumpReply: "dump reply", CommandReply: "command reply", Bye: "bye", Data: "data", Welcome: "welcome", Job: "job",
	Ping: "ping", BarrierDone: "barrier done", RankEnded: "rank ended", Dump: "dump", Command: "command", ByeAck: "bye ack", Reject: "reject",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("unknown kind 0x%02x", uint8(k))
}
