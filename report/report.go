// Package report is what a run leaves behind: the result as a value and as JSON
// with a schema, as JUnit XML, as one HTML page, and as lines on a terminal. It
// runs nothing and judges nothing: whoever ran the scenarios fills it in.
package report

import (
	"time"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// Version is that of result.json's layout.
const Version = 1

// Run is one call of the program: some scenarios, each on some tiers.
type Run struct {
	Version   int       `json:"version"`
	Tool      string    `json:"tool"`    // fabrictest's own version
	Command   string    `json:"command"` // that repeats the run
	Seed      uint64    `json:"seed"`
	Started   time.Time `json:"started"`
	Wall      Duration  `json:"wall"`
	Machine   Machine   `json:"machine"`
	Scenarios []Result  `json:"scenarios"`
}

// Machine is where a run took place.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel,omitempty"`
	CPUs   int    `json:"cpus"`
}

// Verdict is how a scenario ended.
type Verdict string

// The verdicts.
const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"  // an expectation was not met
	Broken  Verdict = "broken"  // it could not be run to its end
	Skipped Verdict = "skipped" // this machine cannot run it: Reason says why
)

// Result is one scenario on one tier.
type Result struct {
	Name    string   `json:"name"`
	Title   string   `json:"title,omitempty"`
	Tags    []string `json:"tags,omitempty"`
	Tier    string   `json:"tier"` // sim or netns
	Seed    uint64   `json:"seed"`
	Verdict Verdict  `json:"verdict"`
	// Reason says in one line why it did not pass.
	Reason string `json:"reason,omitempty"`
	// Detail is more about it: what each rank waits for, a stack.
	Detail string `json:"detail,omitempty"`
	// Replay is the command that runs just this again.
	Replay string `json:"replay"`
	// Elapsed is the time inside the scenario (virtual in simulation), Wall that
	// on the clock of the wall.
	Elapsed Duration           `json:"elapsed"`
	Wall    Duration           `json:"wall"`
	Checks  []Check            `json:"checks,omitempty"`
	Fabric  *topology.Topology `json:"fabric,omitempty"`
	Links   []Link             `json:"links,omitempty"`
	Ranks   []Rank             `json:"ranks,omitempty"`
	Faults  []Fault            `json:"faults,omitempty"`
	// Files are what the scenario left in the run's folder, as paths in it.
	Files []File `json:"files,omitempty"`
}

// Check is an expectation, and what became of it.
type Check struct {
	Name string `json:"name"` // the key in the scenario's expect section
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// Link counts what passed one direction of a cable.
type Link struct {
	From string `json:"from"` // host0/rdma0, switch0
	To   string `json:"to"`
	// Impaired says whether anything was to happen on purpose.
	Impaired bool   `json:"impaired,omitempty"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
	// Lost counts by cause: loss, burst, queue_full, link_down, partition, too_big,
	// event, …; all causes that are not zero.
	Lost       map[string]uint64 `json:"lost,omitempty"`
	Duplicated uint64            `json:"duplicated,omitempty"`
	Reordered  uint64            `json:"reordered,omitempty"`
	Corrupted  uint64            `json:"corrupted,omitempty"`
	Marked     uint64            `json:"marked,omitempty"`
}

// Rank is one rank's part in a scenario.
type Rank struct {
	Rank      int               `json:"rank"`
	Host      string            `json:"host"`
	State     string            `json:"state"` // finished, failed, killed, exited, hung, …
	Error     string            `json:"error,omitempty"`
	ExitCode  *int              `json:"exit_code,omitempty"`
	Signal    string            `json:"signal,omitempty"`
	Messages  uint64            `json:"messages"` // delivered to it
	Bytes     uint64            `json:"bytes"`
	Elapsed   Duration          `json:"elapsed"`
	Resent    uint64            `json:"resent"`
	Failures  int               `json:"failures,omitempty"` // completions with an error
	Reconn    int               `json:"reconnects,omitempty"`
	MemoryKiB int64             `json:"memory_kib,omitempty"` // most resident, where a process ran it
	Latency   *Latency          `json:"latency,omitempty"`
	Counters  map[string]uint64 `json:"counters,omitempty"`
	Samples   []Sample          `json:"samples,omitempty"`
	Marks     []Mark            `json:"marks,omitempty"`
	// Waiting is what the rank was at when it was asked or stopped.
	Waiting string `json:"waiting,omitempty"`
}

// Latency summarises round trips.
type Latency struct {
	Count int      `json:"count"`
	Min   Duration `json:"min"`
	P50   Duration `json:"p50"`
	P99   Duration `json:"p99"`
	Max   Duration `json:"max"`
	Mean  Duration `json:"mean"`
}

// Sample is what a rank had done at a time, all of it since the start.
type Sample struct {
	At       Duration `json:"at"`
	Messages uint64   `json:"messages"`
	Bytes    uint64   `json:"bytes"`
	Resent   uint64   `json:"resent"`
	Errors   uint64   `json:"errors"`
}

// Mark is something that a rank wants seen on the timeline.
type Mark struct {
	At   Duration `json:"at"`
	What string   `json:"what"`
}

// Fault is something that was done to the fabric, and until when.
type Fault struct {
	At    Duration `json:"at"`
	Until Duration `json:"until,omitempty"` // 0: until the end, or done in an instant
	What  string   `json:"what"`            // "host1/rdma0 down"
	// Recovered is how long after the fault's end traffic flowed again at every
	// rank it touched; nil where that was not measured.
	Recovered *Duration `json:"recovered,omitempty"`
}

// File is a file that a scenario left: a capture, a log.
type File struct {
	Kind string `json:"kind"` // capture, log, state
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Duration is a time.Duration that is written as nanoseconds.
type Duration = time.Duration
