// Package report holds the results of a run, writes them as JSON with a schema, as JUnit
// XML and as one HTML page, and prints them on a terminal. The commands that run scenarios
// fill in a Run; this package neither runs nor judges anything.
//
// A Run is plain data. Functions do not modify their arguments, and may be called concurrently.
package report

import (
	"time"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// Version is the version of the layout of result.json.
const Version = 1

// Run is one call of the program: scenarios, each on one or more tiers.
type Run struct {
	Version   int       `json:"version"` // version of this layout
	Tool      string    `json:"tool"`    // version of fabrictest
	Command   string    `json:"command"` // the command that repeats the run
	Seed      uint64    `json:"seed"`    // seed of every scenario; 0: each has its own
	Started   time.Time `json:"started"`
	Wall      Duration  `json:"wall"` // wall-clock time of the run
	Machine   Machine   `json:"machine"`
	Scenarios []Result  `json:"scenarios"` // in the order of the command line
}

// NewRun returns a run of this program without results.
func NewRun(command string, seed uint64, started time.Time) *Run {
	return &Run{Version: Version, Tool: ToolVersion(), Command: command, Seed: seed, Started: started, Machine: ThisMachine()}
}

// Machine is the host of a run.
type Machine struct {
	OS     string `json:"os"`               // GOOS: linux
	Arch   string `json:"arch"`             // GOARCH: amd64, arm64, …
	Kernel string `json:"kernel,omitempty"` // kernel release
	CPUs   int    `json:"cpus"`             // CPUs available to the run
}

// Verdict is the result of a scenario.
type Verdict string

// Verdicts.
const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"  // an expectation was not met
	Broken  Verdict = "broken"  // it could not be completed
	Starved Verdict = "starved" // an expectation about time was not met while the host was too busy
	Skipped Verdict = "skipped" // this host cannot run it, see Reason
)

// Result is one scenario on one tier.
type Result struct {
	Name  string `json:"name"`            // name of the scenario
	Title string `json:"title,omitempty"` // its purpose in one line
	// Description is its purpose at length.
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Tier        string   `json:"tier"` // sim or netns
	Seed        uint64   `json:"seed"` // seed of the run
	// Provider is the kind of NIC of all hosts: softroce, softiwarp, dgiwarp.
	Provider string `json:"provider,omitempty"`
	// Defects are defects of all NICs, in addition to those in the scenario.
	Defects []string `json:"defects,omitempty"`
	// Netem reports that the kernel impaired the links instead of the user-space switch.
	Netem   bool    `json:"netem,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Reason is the reason in one line if the result is not a pass.
	Reason string `json:"reason,omitempty"`
	// Detail has more about the reason: what each rank waits for, a stack trace.
	Detail string `json:"detail,omitempty"`
	// Replay is the command that repeats this scenario.
	Replay string `json:"replay"`
	// Elapsed is the time inside the scenario, virtual in simulation.
	Elapsed Duration `json:"elapsed"`
	// Wall is the wall-clock time.
	Wall   Duration `json:"wall"`
	Checks []Check  `json:"checks,omitempty"`
	// Experiment has the figures of a scenario with an experiment.
	Experiment *Experiment        `json:"experiment,omitempty"`
	Fabric     *topology.Topology `json:"fabric,omitempty"` // topology
	Links      []Link             `json:"links,omitempty"`
	Ranks      []Rank             `json:"ranks,omitempty"`
	Faults     []Fault            `json:"faults,omitempty"`
	// Files are the files of the scenario, as paths in the run's folder.
	Files []File `json:"files,omitempty"`
	// Scheduling is the CPU time of a run in real time.
	Scheduling *Scheduling `json:"scheduling,omitempty"`
	// First is the starved first attempt of a scenario that was repeated.
	First *Attempt `json:"first,omitempty"`
}

// Scheduling is the CPU time that a run in real time got.
type Scheduling struct {
	// Others is the share of CPU time, from 0 to 1, used by other processes or withheld by
	// a CPU limit of the control group.
	Others float64 `json:"others"`
	// Process is the process of the run that waited longest for a CPU, relative to its run
	// time: lab, or a rank.
	Process string   `json:"process,omitempty"`
	Waited  Duration `json:"waited,omitempty"` // time that all threads of Process waited for a CPU
	Ran     Duration `json:"ran,omitempty"`    // CPU time of all threads of Process
	// Late is the largest delay of a fault after its scheduled time.
	Late Duration `json:"late,omitempty"`
}

// Attempt is a run of a scenario that was repeated.
type Attempt struct {
	Reason     string      `json:"reason"`               // why it did not pass
	Wall       Duration    `json:"wall"`                 // wall-clock time
	Scheduling *Scheduling `json:"scheduling,omitempty"` // CPU time
}

// Check is an expectation and its outcome.
type Check struct {
	Name string `json:"name"` // the key in the scenario's expect section
	Want string `json:"want"` // the expected value
	Got  string `json:"got"`  // the actual value
	OK   bool   `json:"ok"`   // the expectation is met
	// Timing reports that a starved host may be the cause of an unmet check: something was
	// late, and nothing was lost, duplicated or corrupted.
	Timing bool `json:"timing,omitempty"`
}

// Link counts the packets of one direction of a cable. Packets in Lost do not reach the
// next cable: after a switch, the packets of the second cable are those of the first
// without its losses.
type Link struct {
	From string `json:"from"` // host0/rdma0, switch0
	To   string `json:"to"`   // the other end
	// Impaired reports that the scenario impairs this direction.
	Impaired bool `json:"impaired,omitempty"`
	// RateBps is the rate of the cable in bits per second; 0 if it is not limited.
	RateBps uint64 `json:"rate_bps,omitempty"`
	// Packets counts packets sent into the cable, including lost ones and excluding
	// duplicates made on the path.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // bytes of those packets, from the IP header on
	// KernelCounted reports that the kernel counted the packets. The kernel may count dozens of
	// consecutive packets as one (segmentation offload), and does not report which were lost.
	KernelCounted bool `json:"coarse,omitempty"`
	// Lost counts losses by cause: loss, burst, queue_full, link_down, partition, too_big,
	// event, …, for all causes that are not zero. Corrupted packets are lost as well, and
	// counted in Corrupted.
	Lost       map[string]uint64 `json:"lost,omitempty"`
	Duplicated uint64            `json:"duplicated,omitempty"` // duplicated packets
	Reordered  uint64            `json:"reordered,omitempty"`  // reordered packets
	Corrupted  uint64            `json:"corrupted,omitempty"`  // corrupted packets
	Marked     uint64            `json:"marked,omitempty"`     // packets that got a CE mark
}

// Rank has the results of one rank.
type Rank struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	State string `json:"state"` // finished, failed, killed, exited, hung, …
	// Error is the error that ended the rank's program.
	Error    string   `json:"error,omitempty"`
	ExitCode *int     `json:"exit_code,omitempty"` // exit code of its process, if it had one
	Signal   string   `json:"signal,omitempty"`    // signal that ended its process
	Messages uint64   `json:"messages"`            // messages delivered to the rank
	Bytes    uint64   `json:"bytes"`               // bytes delivered to the rank
	Elapsed  Duration `json:"elapsed"`             // from the first request to the last completion
	Resent   uint64   `json:"resent"`              // packets retransmitted by its NICs
	Failures int      `json:"failures,omitempty"`  // completions with an error
	Reconn   int      `json:"reconnects,omitempty"`
	// Violations describe broken guarantees, such as lost or duplicated messages.
	Violations []string          `json:"violations,omitempty"`
	MemoryKiB  int64             `json:"memory_kib,omitempty"` // maximum resident set size, if it was a process
	Latency    *Latency          `json:"latency,omitempty"`
	Counters   map[string]uint64 `json:"counters,omitempty"` // counters of its NICs, by name
	Samples    []Sample          `json:"samples,omitempty"`
	Marks      []Mark            `json:"marks,omitempty"`
	// Waiting is the operation that the rank was blocked in when it was stopped.
	Waiting string `json:"waiting,omitempty"`
}

// Latency summarizes round-trip times.
type Latency struct {
	Count int      `json:"count"` // number of round trips
	Min   Duration `json:"min"`
	P50   Duration `json:"p50"` // median
	P99   Duration `json:"p99"` // 99th percentile
	Max   Duration `json:"max"`
	Mean  Duration `json:"mean"`
}

// Sample has the counters of a rank at a time, since the start.
type Sample struct {
	At       Duration `json:"at"`       // time since the start of the scenario
	Messages uint64   `json:"messages"` // messages delivered to the rank
	Bytes    uint64   `json:"bytes"`    // bytes delivered to the rank
	Resent   uint64   `json:"resent"`   // packets retransmitted by its NICs
	Errors   uint64   `json:"errors"`   // completions with an error
}

// Mark is an event of a rank on the timeline.
type Mark struct {
	At   Duration `json:"at"`   // time since the start of the scenario
	What string   `json:"what"` // connected, recovered, …
}

// Fault is an injected fault.
type Fault struct {
	At    Duration `json:"at"`              // time since the start of the scenario
	Until Duration `json:"until,omitempty"` // end; 0: the end of the scenario, or an instant
	What  string   `json:"what"`            // "host1/rdma0 down"
	// On are the names of the affected hosts, ports and switches.
	On []string `json:"on,omitempty"`
	// Recovered is the time from the fault's end until traffic resumed at every affected
	// rank; nil if it was not measured.
	Recovered *Duration `json:"recovered,omitempty"`
}

// File is an output file of a scenario: a capture, a log.
type File struct {
	Kind string `json:"kind"` // capture, log, state
	Path string `json:"path"` // in the folder of the run, with slashes
	Size int64  `json:"size"` // in bytes
}

// Duration is a time.Duration, in nanoseconds in JSON.
type Duration = time.Duration
