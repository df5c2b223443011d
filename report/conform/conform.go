// Package conform holds the results of a conformance run: which cases were run for which
// clauses, with their verdicts. It writes them as JSON with a schema, as JUnit XML and as
// one HTML page, and prints them on a terminal. It also converts the record of a case for
// readers: to a ladder diagram and to a capture for Wireshark. The command that runs the
// cases fills in a Run; this package neither runs nor judges anything.
//
// A Run is plain data. Functions do not modify their arguments, and may be called concurrently.
package conform

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/report"
)

// Version is the version of the layout of conformance.json.
const Version = 1

// Run is one call of the program: devices and the cases that were run on them.
type Run struct {
	Version int            `json:"version"` // version of this layout
	Tool    string         `json:"tool"`    // version of fabrictest
	Command string         `json:"command"` // the command that repeats the run
	Seed    uint64         `json:"seed"`    // seed of random choices of cases
	Started time.Time      `json:"started"`
	Wall    Duration       `json:"wall"` // wall-clock time of the run
	Machine report.Machine `json:"machine"`
	Tier    string         `json:"tier"` // sim or netns
	// Part reports that only some cases were selected.
	Part      bool       `json:"part,omitempty"`
	Devices   []Device   `json:"devices"`
	Documents []Document `json:"documents"` // the ledger: all requirements
	// Faults are faults of the cases themselves, in a run with defects.
	Faults []Fault `json:"faults,omitempty"`
}

// NewRun returns a run of this program that starts now, without results.
func NewRun(seed uint64, tier string) *Run {
	return &Run{Version: Version, Tool: report.ToolVersion(), Seed: seed, Started: time.Now(), Machine: report.ThisMachine(), Tier: tier}
}

// Device is a device under test with its results.
type Device struct {
	Name  string `json:"name"`  // softroce, softiwarp, dgiwarp
	Title string `json:"title"` // display name
	// As is the kernel whose device it imitates.
	As string `json:"as,omitempty"`
	// Defects are the injected defects.
	Defects []string `json:"defects,omitempty"`
	Results []Result `json:"results"` // in the order of the suites
	// DefectChecks list for each possible defect the cases that detect it, in a run with defects.
	DefectChecks []DefectCheck `json:"defectChecks,omitempty"`
	// Measured are measurements of loss recovery and congestion control.
	Measured []Measured `json:"measured,omitempty"`
}

// Measured is a measured quantity with its samples.
type Measured struct {
	Name  string `json:"name"`  // as in nak/generation
	About string `json:"about"` // description
	// Unit is us, packets, or "x nominal" for multiples of a timer's nominal value.
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Least   float64   `json:"least"`
	Most    float64   `json:"most"`
	Samples []float64 `json:"samples"` // in the order of measurement
	// Position is the number of the lost packet in its window, from 1 on; 0 if none was lost.
	Position int `json:"position,omitempty"`
}

// Units of measurements.
const (
	Microseconds = "us"
	Packets      = "packets"
	Nominal      = "x nominal"
)

// Verdict is the result of a case on a device.
type Verdict string

// Verdicts.
const (
	Pass        Verdict = "pass"        // the requirement is met
	Fail        Verdict = "fail"        // the requirement is not met
	Unsupported Verdict = "unsupported" // the device does not claim the feature, or the bench cannot test it
	Deviates    Verdict = "deviates"    // not met, with a deviation on record
	Stale       Verdict = "stale"       // met although a deviation is on record
	Broken      Verdict = "broken"      // the case could not be run
	Starved     Verdict = "starved"     // the case failed each time while other processes used most of the CPU time
)

// Result is one case on one device.
type Result struct {
	ID    string `json:"id"`    // stable ID of the case
	Suite string `json:"suite"` // suite of the case
	Title string `json:"title"` // required behaviour of the device
	// Cite is the document and section of the requirement, or its rows if the section is not public.
	Cite string `json:"cite"`
	// Rows are the rows of the ledger that the case checks.
	Rows    []string `json:"rows"`
	Level   string   `json:"level"`            // MUST, SHOULD or MAY
	Labels  []string `json:"labels,omitempty"` // labels for selecting cases
	Sends   string   `json:"sends"`            // actions of the peer or application
	Expects string   `json:"expects"`          // expected behaviour
	Verdict Verdict  `json:"verdict"`
	// Reason is the reason in one line if the verdict is not pass.
	Reason string `json:"reason,omitempty"`
	// Deviation is the reason of the deviation on record.
	Deviation string `json:"deviation,omitempty"`
	// Want and Got are the required and the observed behaviour of a violation.
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
	// Detail has more about the reason: the stack of a broken case.
	Detail string   `json:"detail,omitempty"`
	Took   Duration `json:"took"`   // wall-clock time
	Replay string   `json:"replay"` // command that repeats this case
	// Defective are the results on devices with a defect that the case should detect.
	Defective []Defective `json:"defective,omitempty"`
	// Ladder is the sequence of events, if it is of interest.
	Ladder *Ladder `json:"ladder,omitempty"`
	// Capture is the capture file, as a path in the run's folder.
	Capture string `json:"capture,omitempty"`
}

// Defective is the result of a case on a device with a defect.
type Defective struct {
	Defect  string  `json:"defect"` // the defect
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"` // why, in one line
}

// DefectCheck is a defect with the cases that detect it.
type DefectCheck struct {
	Defect   string   `json:"defect"`             // its name
	Imitates string   `json:"imitates,omitempty"` // what it imitates
	Does     string   `json:"does"`               // effect of the defect
	Tried    int      `json:"tried"`              // number of cases run with the defect
	Caught   []string `json:"caught,omitempty"`   // cases that fail with the defect
	Expects  []string `json:"expects,omitempty"`  // cases that should fail with the defect
	// Excused is the reason why no case could detect it in this run.
	Excused string `json:"excused,omitempty"`
}

// Fault is a fault of the test suite: a case that cannot fail, a defect that no case detects.
type Fault struct {
	Kind   string `json:"kind"`             // unproven, uncaught, unknown-defect, unsound
	Device string `json:"device,omitempty"` // device of the fault
	Case   string `json:"case,omitempty"`   // case at fault
	Defect string `json:"defect,omitempty"` // defect concerned
	What   string `json:"what"`             // description
}

// Kinds of faults.
const (
	Unsound       = "unsound"        // a case fails on a device without defects
	Unproven      = "unproven"       // a case passes on a device with a defect that it should detect
	UnknownDefect = "unknown-defect" // a case names a defect that no device can have
	Uncaught      = "uncaught"       // a defect that no case detects
)

// Ladder is the sequence of events of a case.
type Ladder struct {
	Steps  []Step `json:"steps"`
	Beyond int    `json:"beyond,omitempty"` // number of omitted steps in the middle
}

// Step is an event of a ladder.
type Step struct {
	At   Duration `json:"at"`   // time since the start of the case; virtual in simulation
	Kind string   `json:"kind"` // sent, came, note, fin-sent, fin-came, reset, gap
	Text string   `json:"text"`
	// Stream is the number of the stream, from 1 on; 0 for packets.
	Stream int `json:"stream,omitempty"`
}

// Kinds of steps.
const (
	Sent        = "sent"     // sent by the peer
	Received    = "came"     // received from the device
	Note        = "note"     // action of the application on the device
	FinSent     = "fin-sent" // FIN sent by the peer
	FinReceived = "fin-came" // FIN received from the device
	Reset       = "reset"    // a stream was reset
	Gap         = "gap"      // omitted steps
)

// clause returns the citation without its rows, which are our numbers of the requirements. A
// citation names them in the place of a clause that is not public: "IBTA, clause not public; row
// roce/rc/psn/6".
func (r *Result) clause() string {
	clause, _, _ := strings.Cut(r.Cite, "; row")
	return clause
}

// Document is a specification.
type Document struct {
	Key      string    `json:"key"`                // short name: roce, rfc5044
	Title    string    `json:"title"`              // full title
	Revision string    `json:"revision,omitempty"` // revision
	Sections []Section `json:"sections"`           // sections
}

// Section is a section of a document.
type Section struct {
	Title string `json:"title"`
	Rows  []Row  `json:"rows"` // its requirements
}

// Row is a requirement.
type Row struct {
	ID     string `json:"id"`
	Level  string `json:"level"`            // MUST, SHOULD or MAY
	Clause string `json:"clause,omitempty"` // section or compliance statement
	// IDs are the public IDs of compliance statements and test assertions that it covers.
	IDs  []string `json:"ids,omitempty"`
	Text string   `json:"text"` // the requirement in words
	// Cases are the cases that check it, run or not.
	Cases []string `json:"cases,omitempty"`
	// Untestable is the reason why no case can check it.
	Untestable string `json:"untestable,omitempty"`
}

// Duration is a time.Duration, in nanoseconds in JSON.
type Duration = time.Duration
