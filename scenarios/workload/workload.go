// Package workload contains the built-in programs of scenarios: stream, ping-pong, random verbs,
// incast, all-to-all, one-sided halo exchange, connections through the connection manager, and
// collective operations.
// Every program checks each byte that it receives, and reports counters, failures and violations.
//
// A program uses verbs and a Rank only. Therefore the same code runs as a coroutine in a
// simulated world and as a process in a network namespace. It opens no device, starts no
// goroutine and reads no clock besides Rank.Proc. It does not decide whether a failure was
// expected: package lab does, which knows the impairments.
//
// Uses go one way: a rail, its receives and endpoints know the environment of the rank (env);
// a link, which is the queue pair and the memory of a connection, knows its rail; producers,
// consumers and atomics know their link; a connection (conn) has all of these, and a node
// runs the connections. Programs of random and calls have an env only.
//
// A Program belongs to the goroutine that calls Run; other goroutines may call Status and Break.
package workload

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Rank is the environment of a program: its rank, the NICs of its host, and a control
// channel to the other ranks.
type Rank struct {
	Rank, Size int
	Seed       uint64
	Proc       verbs.Proc
	NICs       []NIC // one per rail
	Control    Control
	// Go runs f as a concurrent task, which ends with the rank.
	Go func(what string, f func(verbs.Proc))
	// Concurrent means that devices access memory while the program runs, as in real time.
	Concurrent bool
	// StallTimeout is how long a program may make no progress before it fails with a
	// *traffic.StallError; 0: no limit. A simulated world needs it too, because programs poll and
	// hide a deadlock from it.
	StallTimeout time.Duration
}

// NIC is an open device of the host.
type NIC struct {
	Device   verbs.Context
	Addr     netip.Addr
	GIDIndex uint8
	Rail     int
}

// ErrGone means that a rank has ended.
var ErrGone = transport.ErrGone

// Control is the control channel between ranks, which works without the fabric, and to the
// launcher. Messages between two ranks are reliable and in order. Sample and Mark may be
// called by other goroutines.
type Control interface {
	Send(to int, msg []byte) error
	// Recv returns the next message from a rank. It returns verbs.ErrTimeout after timeout
	// (negative: never), and ErrGone if the rank has ended and no message is left.
	Recv(from int, timeout time.Duration) ([]byte, error)
	// Barrier returns when every rank that has not ended has called it.
	Barrier(timeout time.Duration) error
	// Gone reports whether a rank has ended.
	Gone(rank int) bool
	// Mark records an event of the run: "connected", "recovered".
	Mark(what string)
	// Sample records cumulative counters.
	Sample(s Sample)
}

// Sample is the cumulative counters of a rank at a time, for the timelines of a report.
type Sample struct {
	At          time.Duration `json:"at"`
	Messages    uint64        `json:"messages"` // received or read by this rank
	Bytes       uint64        `json:"bytes"`
	Retransmits uint64        `json:"retransmits"` // packets retransmitted by its NICs
	Errors      uint64        `json:"errors"`      // completions with an error
}

// Report is the result of a rank, whether or not its program completed.
type Report struct {
	Rank    int           `json:"rank"`
	Elapsed time.Duration `json:"elapsed"` // from the first request to the last completion
	// Flows are the counters for each peer.
	Flows []Flow `json:"flows,omitempty"`
	// Latency summarises round trips of programs that measure them.
	Latency *traffic.Latency `json:"latency,omitempty"`
	// Failures are completions with an error, in order, the first of each connection: later ones
	// are flushed because of it. At most MaxFailures are listed; FailureCount counts all.
	Failures     []Failure `json:"failures,omitempty"`
	FailureCount int       `json:"failure_count,omitempty"`
	// Reconnects counts connections after an error that then delivered something.
	Reconnects int `json:"reconnects,omitempty"`
	// Violations are guarantees that the fabric has broken.
	Violations []Violation `json:"violations,omitempty"`
	// MemoryChecked is the number of bytes that were compared with their expected value.
	MemoryChecked int64 `json:"memory_checked"`
	// Counters are the increments of the device counters, summed by name.
	Counters []verbs.Counter `json:"counters,omitempty"`
}

// MaxFailures limits the failures in a Report.
const MaxFailures = 64

// Flow is the traffic with one peer.
type Flow struct {
	Peer int `json:"peer"`
	// Rail is the last rail used.
	Rail       int    `json:"rail"`
	Service    string `json:"service,omitempty"` // rc, srq, xrc, uc, ud, rd
	Posted     int    `json:"posted"`            // requests to the peer
	Acked      int    `json:"acked"`             // completed with success
	Expected   int    `json:"expected"`          // messages from the peer
	Arrived    int    `json:"arrived"`           // without duplicates
	Duplicates int    `json:"twice"`             // messages that had arrived before
	Reordered  int    `json:"swapped"`           // messages out of order
	Bytes      int64  `json:"bytes"`             // received
}

// Failure is a completion with an error, a failed connection request (IBV_WC_RESP_TIMEOUT_ERR), or the loss of
// another rank.
type Failure struct {
	At     time.Duration `json:"at"`
	Peer   int           `json:"peer"` // -1 if Status is PeerLost: another rank may have reported the loss
	Rail   int           `json:"rail"`
	Status string        `json:"status"` // String of a verbs.WCStatus, or PeerLost
}

// Program is one rank's run of a workload. It belongs to the goroutine or coroutine that
// calls Run; Status may be called from another goroutine.
type Program interface {
	// Run runs the program to its end. Violations of the fabric are in the Report, which is
	// never nil; the error is what stopped the program.
	Run() (*Report, error)
	// Status describes in a few lines the progress of the program and what it waits for.
	Status() string
}

// Breaker is a Program whose queue pairs can be broken deliberately. Break moves them to
// the error state; another goroutine or simulated program calls it during Run.
type Breaker interface {
	Break() error
}
