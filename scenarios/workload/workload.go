// Package workload holds the built-in programs that the ranks of a fabric run:
// stream, ping-pong, random verbs work, incast, all-to-all, a one-sided halo
// exchange, connections made and torn down. Every program checks what it
// receives, byte by byte, and reports what it saw.
//
// A program is written against verbs and the few things a Rank gives it, so the
// same code is a coroutine in a simulated world and an OS process in a network
// namespace. It opens no device, starts no goroutine and keeps no time of its
// own, and it judges nothing but what it receives: whether a failure was to be
// expected is for whoever broke the fabric to say.
//
// A Program belongs to the one goroutine that calls Run; Status and Break may
// be called by others meanwhile.
package workload

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Rank is what a program is given: its place among the others, the NICs of its
// host, and a way to the other ranks besides the fabric.
type Rank struct {
	Rank, Size int
	Seed       uint64
	Proc       verbs.Proc
	NICs       []NIC // one a rail
	Control    Control
	// Concurrent says that devices work on memory while the program runs, as they
	// do in real time.
	Concurrent bool
	// StallTimeout is how long a program waits while nothing at all happens before it
	// fails with what it waits for (a *StuckError); 0 means without end. A
	// simulated world should set it too: programs look out for each other now and
	// then, which hides a deadlock from it.
	StallTimeout time.Duration
}

// NIC is an opened device of the rank's host.
type NIC struct {
	Device   verbs.Context
	Addr     netip.Addr
	GIDIndex uint8
	Rail     int
}

// ErrGone is what Control returns of a rank that has ended.
var ErrGone = errors.New("the rank has ended")

// Control is the way between ranks that start-up needs before the fabric can be
// used, and where a program tells its launcher how it is getting on. Messages
// between two ranks arrive in order and are never lost. One program uses it, and
// Sample and Mark may be called by others of its host.
type Control interface {
	Send(to int, msg []byte) error
	// Recv returns the next message from a rank. It waits for timeout at most
	// (without end if negative) and then returns verbs.ErrTimeout; ErrGone if the
	// rank has ended and no message of its is left.
	Recv(from int, timeout time.Duration) ([]byte, error)
	// Barrier returns when every rank that has not ended has called it.
	Barrier(timeout time.Duration) error
	// Mark puts an event into the record of the run: "connected", "recovered".
	Mark(what string)
	// Sample puts cumulative figures into the record of the run.
	Sample(s Sample)
}

// Sample is what a rank has done up to a time, for the timelines of a report.
type Sample struct {
	At          time.Duration `json:"at"`
	Messages    uint64        `json:"messages"` // delivered to this rank, or read by it
	Bytes       uint64        `json:"bytes"`
	Retransmits uint64        `json:"retransmits"` // packets that its NICs sent again
	Errors      uint64        `json:"errors"`      // completions with an error
}

// Report is what a rank has seen, whether or not its program came to its end.
type Report struct {
	Rank    int           `json:"rank"`
	Elapsed time.Duration `json:"elapsed"` // from the first request to the last completion
	// Flows are the rank's dealings with each peer.
	Flows []Flow `json:"flows,omitempty"`
	// Latency summarises round trips where the program measures any.
	Latency *Latency `json:"latency,omitempty"`
	// Failures are completions with an error, in the order they came (the first
	// MaxFailures of them; FailureCount counts all). Of each connection the first
	// counts: what is flushed behind it only follows from it.
	Failures     []Failure `json:"failures,omitempty"`
	FailureCount int       `json:"failure_count,omitempty"`
	// Reconnects counts connections made anew after an error that then carried
	// something.
	Reconnects int `json:"reconnects,omitempty"`
	// Violations say what the fabric broke of its promises; empty is what one
	// hopes for.
	Violations []Violation `json:"violations,omitempty"`
	// MemoryChecked is how many bytes were compared with what they must be.
	MemoryChecked int64 `json:"memory_checked"`
	// Counters are what the rank's devices counted meanwhile, summed by name.
	Counters []verbs.Counter `json:"counters,omitempty"`
}

// MaxFailures is how many failures a Report describes.
const MaxFailures = 64

// Flow is what a rank exchanged with one peer.
type Flow struct {
	Peer int `json:"peer"`
	// Rail is the one in use at the end.
	Rail       int    `json:"rail"`
	Service    string `json:"service,omitempty"` // rc, srq, xrc, uc, ud, rd
	Posted     int    `json:"posted"`            // requests to the peer
	Acked      int    `json:"acked"`             // completed with success
	Expected   int    `json:"expected"`          // messages from the peer
	Arrived    int    `json:"arrived"`           // each counted once
	Duplicates int    `json:"twice"`             // arrivals of a message that had come already
	Reordered  int    `json:"swapped"`           // arrivals out of order
	Bytes      int64  `json:"bytes"`             // arrived
}

// Latency summarises the round trips of a program.
type Latency struct {
	Count int           `json:"count"`
	Min   time.Duration `json:"min"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
	Sum   time.Duration `json:"sum"`
}

// Failure is a completion with an error, or a connection that the connection
// manager could not make (IBV_WC_RESP_TIMEOUT_ERR).
type Failure struct {
	At     time.Duration `json:"at"`
	Peer   int           `json:"peer"`
	Rail   int           `json:"rail"`
	Status string        `json:"status"` // as verbs.WCStatus says
}

// Program is one rank's run of a workload. It belongs to the goroutine or
// coroutine that calls Run; Status may be called from another goroutine.
type Program interface {
	// Run does the work and returns when this rank is done. What the fabric did
	// wrong is in the Report's Violations; the error is what kept the program from
	// going on. The Report is never nil.
	Run() (*Report, error)
	// Status says in a few lines how far the program has come and what it waits
	// for.
	Status() string
}

// Breaker is a Program whose queue pairs can be broken on purpose. Break moves
// them to Error; another goroutine of the host, or another program of the
// simulated world, calls it while Run is under way.
type Breaker interface {
	Break() error
}
