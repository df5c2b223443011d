package launch

import (
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// Environment variables of a rank.
const (
	envControl = "FABRICTEST_CONTROL" // number of the inherited descriptor
	envRank    = "FABRICTEST_RANK"
	envSize    = "FABRICTEST_SIZE"
	envHost    = "FABRICTEST_HOST"
	// envGroup is a unique ID that the processes of a group and their children
	// inherit. The launcher uses it to find processes that left their process group.
	envGroup = "FABRICTEST_GROUP"
)

// version is that of the protocol.
const version = 2

// joinTimeout limits the wait for the launcher's welcome.
const joinTimeout = 30 * time.Second

// The protocol as the launcher and as a rank see it. A rank sends its hello first, and
// the launcher answers with a welcome. The last frame of a rank is a Close with an error
// or nothing, and the launcher answers with a Close.
var (
	launcherProtocol = control.Protocol{Version: version, Us: "the launcher", Them: "the rank", MaxHello: 4 << 10}
	rankProtocol     = control.Protocol{
		Version: version, Us: "the rank", Them: "the launcher", MaxHello: 2 * maxJob, Timeout: joinTimeout,
	}
)

// hello is the first message of a rank.
type hello struct {
	PID int    `json:"pid"`
	Go  string `json:"go,omitempty"` // runtime.Version; empty if not a Go program
}

// welcome is the launcher's answer.
type welcome struct {
	Rank       int    `json:"rank"`
	Size       int    `json:"size"`
	Host       string `json:"host"`
	MaxMessage int    `json:"max_message"`
	MaxReport  int    `json:"max_report"`
	Job        []byte `json:"job"`
}

// Frames of the protocol besides Ping, Pong, Reply and Close of package control.
const (
	// kindData is a message between ranks. Num is the destination in frames to the
	// launcher and the source in frames from the launcher.
	kindData = control.Own + iota

	// Frames from a rank:
	kindBarrier // the rank entered barrier Num, 1 for the first
	kindMark    // text of a Marked event
	kindSample  // JSON of a Sampled event
	kindReport  // the result; at most one

	// Frames from the launcher:
	kindBarrierDone // all ranks entered barrier Num
	kindRankEnded   // rank Num has ended; no more messages of it will follow
	kindDump        // a call; the reply is the state of the rank
	kindCommand     // a call; the reply is an error, empty on success
)

// kindNames are the names of these kinds.
var kindNames = []string{"message", "barrier", "mark", "sample", "report", "barrier done", "rank ended", "dump", "command"}

// Maximum sizes of bodies that are not configurable.
const (
	maxMark    = 4 << 10
	maxSample  = 64 << 10
	maxDump    = 256 << 10
	maxCommand = 64 << 10
	maxReason  = control.MaxReason
	maxJob     = 64 << 20
)

// rankLimits returns the longest body of each kind of frame that a rank may send.
func (w *welcome) rankLimits() control.Limits {
	return control.Limits{
		control.Pong: 0, control.Reply: maxDump, control.Close: maxReason,
		kindData: w.MaxMessage, kindBarrier: 0, kindMark: maxMark, kindSample: maxSample, kindReport: w.MaxReport,
	}
}

// launcherLimits returns the longest body of each kind of frame that the launcher may send.
func (w *welcome) launcherLimits() control.Limits {
	return control.Limits{
		control.Ping: 0, control.Close: maxReason,
		kindData: w.MaxMessage, kindBarrierDone: 0, kindRankEnded: 0, kindDump: 0, kindCommand: maxCommand,
	}
}
