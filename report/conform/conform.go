// Package conform is what a judgement of devices leaves behind: which clauses of the
// specifications were asked about, by which cases, and what came of each, as a value
// and as JSON with a schema, as JUnit XML, and as one HTML page. It judges nothing
// and runs nothing: whoever ran the cases fills it in.
//
// A Run is plain data. Nothing here changes one that it is given, and any number
// of goroutines may write the same one at a time.
package conform

import (
	"time"

	"github.com/fabrictest/fabrictest/report"
)

// Version is that of conformance.json's layout.
const Version = 1

// Run is one call of the program: some devices, each judged by some cases.
type Run struct {
	Version int            `json:"version"` // of this layout
	Tool    string         `json:"tool"`    // fabrictest's own version
	Command string         `json:"command"` // that repeats the run
	Seed    uint64         `json:"seed"`    // of what cases choose by chance
	Started time.Time      `json:"started"`
	Wall    Duration       `json:"wall"` // how long it all took, on the clock of the wall
	Machine report.Machine `json:"machine"`
	Tier    string         `json:"tier"` // sim or netns
	// Part says that only some of the cases were asked for: what the others would
	// have found out is not known.
	Part      bool       `json:"part,omitempty"`
	Devices   []Device   `json:"devices"`
	Documents []Document `json:"documents"` // the ledger: what there is to be asked about
	// Faults say what is wrong with the cases themselves, of a run with mutants.
	Faults []Fault `json:"faults,omitempty"`
}

// Device is one that was judged, and what came of it.
type Device struct {
	Name  string `json:"name"`  // softroce, softiwarp, dgiwarp
	Title string `json:"title"` // what people call it
	// As is the kernel that it was made to behave like.
	As string `json:"as,omitempty"`
	// Quirks are the defects that it was given.
	Quirks  []string `json:"quirks,omitempty"`
	Results []Result `json:"results"` // in the order of the suites
	// Mutants say, for each defect that the device can have, which cases notice it; of
	// a run with mutants.
	Mutants []Mutant `json:"mutants,omitempty"`
	// Measured is how it gets over losses and congestion; of a run that measures.
	Measured []Measured `json:"measured,omitempty"`
}

// Measured is something that was measured of a device, several times.
type Measured struct {
	Name  string `json:"name"`  // as in nak/generation
	About string `json:"about"` // what it is, in words
	// Unit is that of the numbers: us, packets, or "x nominal" for multiples of what a
	// timer is set to.
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Least   float64   `json:"least"`
	Most    float64   `json:"most"`
	Samples []float64 `json:"samples"` // in the order in which they were taken
	// Position is where in a window of packets the one was that was lost, from 1 on; 0
	// if it is about none.
	Position int `json:"position,omitempty"`
}

// The units of what is measured.
const (
	Microseconds = "us"
	Packets      = "packets"
	Nominal      = "x nominal"
)

// Verdict is what is said of a device and a case.
type Verdict string

// The verdicts.
const (
	Pass        Verdict = "pass"        // the clause is met
	Fail        Verdict = "fail"        // it is not
	Unsupported Verdict = "unsupported" // the device never claimed it, or this bench cannot ask
	Deviates    Verdict = "deviates"    // it is not met, which is known and reasoned
	Stale       Verdict = "stale"       // it is met though a deviation is on record
	Broken      Verdict = "broken"      // the case could not be run; nothing is said of the device
)

// Result is one case on one device.
type Result struct {
	ID    string `json:"id"`    // of the case; it never changes
	Suite string `json:"suite"` // that the case is of
	Title string `json:"title"` // what the device must do
	// Cite is document and section that the case rests on.
	Cite string `json:"cite"`
	// Rows are those of the ledger that it checks.
	Rows    []string `json:"rows"`
	Level   string   `json:"level"`            // MUST, SHOULD or MAY
	Labels  []string `json:"labels,omitempty"` // that cases can be chosen by
	Sends   string   `json:"sends"`            // what the judge does
	Expects string   `json:"expects"`          // what it wants to see
	Verdict Verdict  `json:"verdict"`
	// Reason says in one line why it is no pass.
	Reason string `json:"reason,omitempty"`
	// Deviation is why the device is known not to meet the clause.
	Deviation string `json:"deviation,omitempty"`
	// Want and Got are what a clause demands that is not met, and what the device did.
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
	// Detail is more about it: the stack of a case that broke.
	Detail string   `json:"detail,omitempty"`
	Took   Duration `json:"took"`   // to find out, on the clock of the wall
	Replay string   `json:"replay"` // the command that runs just this again
	// Flawed are the devices with a defect that the case is to catch.
	Flawed []Flawed `json:"flawed,omitempty"`
	// Ladder is what happened, where that is of interest.
	Ladder *Ladder `json:"ladder,omitempty"`
	// Capture is the file with its packets, as a path in the run's folder.
	Capture string `json:"capture,omitempty"`
}

// Flawed is what came of a case on a device with a defect.
type Flawed struct {
	Quirk   string  `json:"quirk"` // the defect
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"` // why, in one line
}

// Mutant is a defect, and who notices it.
type Mutant struct {
	Quirk   string   `json:"quirk"`             // its name
	Defect  string   `json:"defect,omitempty"`  // what it imitates
	Does    string   `json:"does"`              // what is wrong with the device then
	Tried   int      `json:"tried"`             // cases that were run on a device with it
	Caught  []string `json:"caught,omitempty"`  // cases that fail there
	Expects []string `json:"expects,omitempty"` // cases that are to fail there
	// Excused is why nobody could notice it in this run.
	Excused string `json:"excused,omitempty"`
}

// Fault is something wrong with the judge: a case that cannot fail, a defect that
// nobody notices.
type Fault struct {
	Kind   string `json:"kind"`             // unproven, uncaught, unknown-quirk, unsound
	Device string `json:"device,omitempty"` // on which it shows
	Case   string `json:"case,omitempty"`   // that it is the fault of
	Quirk  string `json:"quirk,omitempty"`  // that it is about
	What   string `json:"what"`             // a sentence
}

// The kinds of faults.
const (
	Unsound      = "unsound"       // a case fails on a device without defects
	Unproven     = "unproven"      // a case passes on a device with the defect that it is to catch
	UnknownQuirk = "unknown-quirk" // a case names a defect that no device can have
	Uncaught     = "uncaught"      // a defect that no case notices
)

// Ladder is what happened in a case, step by step.
type Ladder struct {
	Steps  []Step `json:"steps"`
	Beyond int    `json:"beyond,omitempty"` // steps in the middle that are left out
}

// Step is something that happened.
type Step struct {
	At   Duration `json:"at"`   // since the case began; virtual in simulation
	Kind string   `json:"kind"` // sent, came, note, fin-sent, fin-came, reset, gap
	Text string   `json:"text"`
	// Stream numbers the byte streams of a case from 1 on; 0 for packets.
	Stream int `json:"stream,omitempty"`
}

// The kinds of steps.
const (
	Sent    = "sent"     // by the judge
	Came    = "came"     // from the device
	Note    = "note"     // what the application on the device did or saw
	FinSent = "fin-sent" // the judge closed its side of a stream
	FinCame = "fin-came" // the device closed its side
	Reset   = "reset"    // a stream broke
	Gap     = "gap"      // steps that are left out here
)

// Document is a specification.
type Document struct {
	Key      string    `json:"key"`                // short name: roce, rfc5044
	Title    string    `json:"title"`              // what it is called
	Revision string    `json:"revision,omitempty"` // which one was read
	Sections []Section `json:"sections"`           // its parts
}

// Section is a part of it.
type Section struct {
	Title string `json:"title"`
	Rows  []Row  `json:"rows"` // what it demands
}

// Row is a requirement.
type Row struct {
	ID     string `json:"id"`
	Level  string `json:"level"`            // MUST, SHOULD or MAY
	Clause string `json:"clause,omitempty"` // where it stands
	Text   string `json:"text"`             // what it demands
	// Cases are those that check it, run or not.
	Cases []string `json:"cases,omitempty"`
	// Untestable is why none can.
	Untestable string `json:"untestable,omitempty"`
}

// Duration is a time.Duration that is written as nanoseconds.
type Duration = time.Duration
