// Package report is what a run leaves behind: the result as a value and as JSON
// with a schema, as JUnit XML, and as one HTML page; report/console shows it on a
// terminal. It runs nothing and judges nothing: whoever ran the scenarios fills
// it in.
//
// A Run is plain data. Nothing here changes one that it is given, and any number
// of goroutines may write the same one at a time.
package report

import (
	"time"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// Version is that of result.json's layout.
const Version = 1

// Run is one call of the program: some scenarios, each on some tiers.
type Run struct {
	Version   int       `json:"version"` // of this layout
	Tool      string    `json:"tool"`    // fabrictest's own version
	Command   string    `json:"command"` // that repeats the run
	Seed      uint64    `json:"seed"`    // that every scenario was run with; 0: each with its own
	Started   time.Time `json:"started"`
	Wall      Duration  `json:"wall"` // how long it all took, on the clock of the wall
	Machine   Machine   `json:"machine"`
	Scenarios []Result  `json:"scenarios"` // in the order they were asked for
}

// Machine is where a run took place.
type Machine struct {
	OS     string `json:"os"`               // as Go calls it: linux
	Arch   string `json:"arch"`             // amd64, arm64, …
	Kernel string `json:"kernel,omitempty"` // its release
	CPUs   int    `json:"cpus"`             // that the run could use
}

// Verdict is how a scenario ended.
type Verdict string

// The verdicts.
const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"  // an expectation was not met
	Broken  Verdict = "broken"  // it could not be run to its end
	Starved Verdict = "starved" // an expectation about time was not met while the machine was too busy to tell
	Skipped Verdict = "skipped" // this machine cannot run it: Reason says why
)

// Result is one scenario on one tier.
type Result struct {
	Name  string `json:"name"`            // of the scenario
	Title string `json:"title,omitempty"` // what it shows, in one line
	// Description is what it shows at length.
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Tier        string   `json:"tier"` // sim or netns
	Seed        uint64   `json:"seed"` // that it was run with
	// Provider is the kind of NIC that every host had: softroce, softiwarp, dgiwarp.
	Provider string `json:"provider,omitempty"`
	// Quirks are the defects that every NIC was given besides the scenario's own.
	Quirks []string `json:"quirks,omitempty"`
	// Netem says that the kernel impaired links, and not the user-space switch.
	Netem   bool    `json:"netem,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Reason says in one line why it did not pass.
	Reason string `json:"reason,omitempty"`
	// Detail is more about it: what each rank waits for, a stack.
	Detail string `json:"detail,omitempty"`
	// Replay is the command that runs just this again.
	Replay string `json:"replay"`
	// Elapsed is the time inside the scenario, virtual in simulation.
	Elapsed Duration `json:"elapsed"`
	// Wall is the time on the clock of the wall.
	Wall   Duration           `json:"wall"`
	Checks []Check            `json:"checks,omitempty"`
	Fabric *topology.Topology `json:"fabric,omitempty"` // that it ran on
	Links  []Link             `json:"links,omitempty"`
	Ranks  []Rank             `json:"ranks,omitempty"`
	Faults []Fault            `json:"faults,omitempty"`
	// Files are what the scenario left in the run's folder, as paths in it.
	Files []File `json:"files,omitempty"`
	// Scheduling says how much of the processors the run got, where time is real.
	Scheduling *Scheduling `json:"scheduling,omitempty"`
	// First is how a first attempt ended that was starved, and therefore repeated.
	First *Attempt `json:"first,omitempty"`
}

// Scheduling is how much of the processors a run in real time got.
type Scheduling struct {
	// Others is the share of the processors, from 0 to 1, that processes outside of the run
	// used, or that a CPU limit of its control group withheld.
	Others float64 `json:"others"`
	// Process is the one of the run that waited for a processor for the greatest part of
	// its time: lab, or a rank.
	Process string   `json:"process,omitempty"`
	Waited  Duration `json:"waited,omitempty"` // for a processor, by all threads of Process
	Ran     Duration `json:"ran,omitempty"`    // on a processor, all threads of Process
	// Late is by how much the fault that was most behind its time came too late.
	Late Duration `json:"late,omitempty"`
}

// Attempt is a run of a scenario that was repeated.
type Attempt struct {
	Reason     string      `json:"reason"`               // why it did not pass
	Wall       Duration    `json:"wall"`                 // how long it took, on the clock of the wall
	Scheduling *Scheduling `json:"scheduling,omitempty"` // how much of the processors it got
}

// Check is an expectation, and what became of it.
type Check struct {
	Name string `json:"name"` // the key in the scenario's expect section
	Want string `json:"want"` // what the scenario says must be
	Got  string `json:"got"`  // what was
	OK   bool   `json:"ok"`   // whether the one is the other
	// Timing says of a check that is not met that a starved machine can be the cause:
	// something came too late, and nothing was lost, doubled or damaged.
	Timing bool `json:"timing,omitempty"`
}

// Link counts what passed one direction of a cable. What is in Lost never gets to
// the next: behind a switch, the packets of the second cable are those of the
// first without its losses.
type Link struct {
	From string `json:"from"` // host0/rdma0, switch0
	To   string `json:"to"`   // the other end
	// Impaired says whether anything was to happen on purpose.
	Impaired bool `json:"impaired,omitempty"`
	// RateBps is how many bits a second the cable carries; 0 if that is up to the
	// machine.
	RateBps uint64 `json:"rate_bps,omitempty"`
	// Packets are those that were to pass: the lost ones too, and copies made on
	// the way not.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // of those packets, from their IP headers on
	// Coarse says that the kernel carried and counted them. It may take dozens of
	// packets that follow each other for one, and does not say which it lost.
	Coarse bool `json:"coarse,omitempty"`
	// Lost counts by cause: loss, burst, queue_full, link_down, partition, too_big,
	// event, …; all causes that are not zero. Packets that were damaged came to
	// nothing as well, and are in Corrupted.
	Lost       map[string]uint64 `json:"lost,omitempty"`
	Duplicated uint64            `json:"duplicated,omitempty"` // packets that passed twice
	Reordered  uint64            `json:"reordered,omitempty"`  // packets that others overtook
	Corrupted  uint64            `json:"corrupted,omitempty"`  // packets that were damaged
	Marked     uint64            `json:"marked,omitempty"`     // packets that met congestion and say so
}

// Rank is one rank's part in a scenario.
type Rank struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	State string `json:"state"` // finished, failed, killed, exited, hung, …
	// Error is what kept the rank's program from going on.
	Error    string   `json:"error,omitempty"`
	ExitCode *int     `json:"exit_code,omitempty"` // of its process, where it had one
	Signal   string   `json:"signal,omitempty"`    // that ended its process
	Messages uint64   `json:"messages"`            // delivered to it
	Bytes    uint64   `json:"bytes"`               // delivered to it
	Elapsed  Duration `json:"elapsed"`             // from the first request to the last completion
	Resent   uint64   `json:"resent"`              // packets that its NICs sent again
	Failures int      `json:"failures,omitempty"`  // completions with an error
	Reconn   int      `json:"reconnects,omitempty"`
	// Violations say what the fabric broke of its promises to this rank.
	Violations []string          `json:"violations,omitempty"`
	MemoryKiB  int64             `json:"memory_kib,omitempty"` // most resident, where a process ran it
	Latency    *Latency          `json:"latency,omitempty"`
	Counters   map[string]uint64 `json:"counters,omitempty"` // of its NICs, by name
	Samples    []Sample          `json:"samples,omitempty"`
	Marks      []Mark            `json:"marks,omitempty"`
	// Waiting is what the rank was at when it was asked or stopped.
	Waiting string `json:"waiting,omitempty"`
}

// Latency summarises round trips.
type Latency struct {
	Count int      `json:"count"` // how many there were
	Min   Duration `json:"min"`
	P50   Duration `json:"p50"` // half of them took no longer
	P99   Duration `json:"p99"` // 99 of 100 took no longer
	Max   Duration `json:"max"`
	Mean  Duration `json:"mean"`
}

// Sample is what a rank had done at a time, all of it since the start.
type Sample struct {
	At       Duration `json:"at"`       // since the scenario began
	Messages uint64   `json:"messages"` // delivered to it
	Bytes    uint64   `json:"bytes"`    // delivered to it
	Resent   uint64   `json:"resent"`   // packets that its NICs sent again
	Errors   uint64   `json:"errors"`   // completions with an error
}

// Mark is something that a rank wants seen on the timeline.
type Mark struct {
	At   Duration `json:"at"`   // since the scenario began
	What string   `json:"what"` // connected, recovered, …
}

// Fault is something that was done to the fabric, and until when.
type Fault struct {
	At    Duration `json:"at"`              // since the scenario began
	Until Duration `json:"until,omitempty"` // 0: until the end, or done in an instant
	What  string   `json:"what"`            // "host1/rdma0 down"
	// On are the hosts, ports and switches that it was done to, by name, for the
	// drawing of the fabric.
	On []string `json:"on,omitempty"`
	// Recovered is how long after the fault's end traffic flowed again at every
	// rank it touched; nil where that was not measured.
	Recovered *Duration `json:"recovered,omitempty"`
}

// File is a file that a scenario left: a capture, a log.
type File struct {
	Kind string `json:"kind"` // capture, log, state
	Path string `json:"path"` // in the folder of the run, with slashes
	Size int64  `json:"size"` // in bytes
}

// Duration is a time.Duration that is written as nanoseconds.
type Duration = time.Duration
