// Package certificate writes and verifies the certificate of a device: its identity, the
// configuration of the test, the state of every clause, the captures as evidence, and a
// manifest with hashes. The states follow by fixed rules from the results of the cases;
// [Verify] derives them again.
package certificate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Version is the version of the layout of certificate.json.
const Version = 1

// Certificate is the certificate of a device.
type Certificate struct {
	Version int     `json:"version"` // version of this layout
	Outcome Outcome `json:"outcome"` // outcome over all clauses
	// Why explains the outcome in a sentence.
	Why     string  `json:"why"`
	Subject Subject `json:"subject"`
	Judge   Judge   `json:"judge"`
	// Counts are the numbers of clauses by level and state.
	Counts []Count `json:"counts"`
	// Clauses are the clauses of the documents that apply to the device.
	Clauses []Clause `json:"clauses"`
	// Run holds the results of the cases, for this device only.
	Run conform.Run `json:"run"`
}

// Outcome is the overall result for a device.
type Outcome string

// Outcomes.
const (
	// Conforms: every applicable clause of level MUST is met.
	Conforms Outcome = "conforms"
	// WithDeviations: every MUST clause that is not met has a deviation on record.
	WithDeviations Outcome = "conforms-with-deviations"
	// DoesNotConform: some MUST clauses are not met.
	DoesNotConform Outcome = "does-not-conform"
	// Incomplete: no MUST clause failed, but some were not tested.
	Incomplete Outcome = "incomplete"
)

// Subject is the device with its host.
type Subject struct {
	Device    string `json:"device"`             // name on its host
	Kind      string `json:"kind,omitempty"`     // the device kind of its deviations, as in rxe-6.12
	Transport string `json:"transport"`          // RoCEv2, iWARP or datagram-iWARP
	Driver    string `json:"driver,omitempty"`   // driver and version
	Firmware  string `json:"firmware,omitempty"` // firmware version reported by the device
	VendorID  uint32 `json:"vendor_id"`
	PartID    uint32 `json:"part_id"`
	GUID      string `json:"guid"`
	// Claims are the claimed capabilities.
	Claims []string `json:"claims"`
	// Addresses are the addresses used in the test.
	Addresses []string `json:"addresses"`
	Host      string   `json:"host,omitempty"` // host name
	Kernel    string   `json:"kernel,omitempty"`
	Library   string   `json:"library,omitempty"` // verbs library
}

// Judge describes the test system at the other end of the link.
type Judge struct {
	// Wire is the access to the link, as in "AF_PACKET on eth1".
	Wire string `json:"wire"`
	// Blind lists what this access can neither observe nor set.
	Blind     []string  `json:"blind,omitempty"`
	Addresses []string  `json:"addresses"`
	Agent     string    `json:"agent,omitempty"` // address of the agent on the device's host
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
}

// Count is the number of clauses of a level in a state.
type Count struct {
	Level string `json:"level"`
	State State  `json:"state"`
	N     int    `json:"n"`
}

// Clause is a requirement with its state.
type Clause struct {
	Row    string `json:"row"` // row of the ledger
	Level  string `json:"level"`
	Clause string `json:"clause,omitempty"` // section or compliance statement
	// IDs are the public IDs of compliance statements and test assertions that it covers.
	IDs   []string `json:"ids,omitempty"`
	State State    `json:"state"`
	// Cases are the cases that were run for it.
	Cases []string `json:"cases,omitempty"`
}

// State is the worst verdict of a clause's cases, or the reason why there is none.
type State string

// States. The first six are the verdicts of cases.
const (
	Broken      State = State(conform.Broken)
	Fail        State = State(conform.Fail)
	Stale       State = State(conform.Stale)
	Deviates    State = State(conform.Deviates)
	Pass        State = State(conform.Pass)
	Unsupported State = State(conform.Unsupported)
	NotAsked    State = "not-asked"  // no case of it was run
	Untestable  State = "untestable" // no case can test it
)

// states lists all states, the worst first.
var states = []State{Broken, Fail, Stale, Deviates, NotAsked, Pass, Unsupported, Untestable}

// New returns the certificate of a run: the state of each clause of the standards and the outcome,
// from the results of the cases. The run must have one device, without injected defects. judge
// describes the test system.
func New(run *conform.Run, subject Subject, judge Judge) (*Certificate, error) {
	if len(run.Devices) != 1 {
		return nil, fmt.Errorf("a certificate is for one device, but the run has %s", cli.Plural(len(run.Devices), "device"))
	}
	if defects := run.Devices[0].Defects; len(defects) > 0 {
		return nil, fmt.Errorf("the device has the injected defects %v: a certificate is for unmodified devices", defects)
	}
	c := &Certificate{Version: Version, Subject: subject, Judge: judge, Run: *run}
	c.Clauses = clauses(run)
	c.Counts = counts(c.Clauses)
	c.Outcome, c.Why = outcome(run, c.Clauses)
	return c, nil
}

// clauses returns the clauses, with their states, of the documents that apply to the device. A
// document is a standard, with a row for each clause; it applies if a case was run for some clause.
func clauses(run *conform.Run) (all []Clause) {
	results := make(map[string][]*conform.Result) // of the cases, by row ID of a clause
	for i := range run.Devices[0].Results {
		r := &run.Devices[0].Results[i]
		for _, row := range r.Rows {
			results[row] = append(results[row], r)
		}
	}
	for i := range run.Documents {
		var rows []Clause
		applies := false
		for j := range run.Documents[i].Sections {
			for _, row := range run.Documents[i].Sections[j].Rows {
				c := Clause{Row: row.ID, Level: row.Level, Clause: row.Clause, IDs: row.IDs, State: NotAsked}
				switch {
				case len(results[row.ID]) > 0:
					c.State, c.Cases = clauseState(results[row.ID])
					applies = true
				case row.Untestable != "":
					c.State = Untestable
				}
				rows = append(rows, c)
			}
		}
		if applies {
			all = append(all, rows...)
		}
	}
	return all
}

// clauseState returns the state of a clause, which is the worst verdict of its cases, and the
// sorted IDs of the cases.
func clauseState(results []*conform.Result) (s State, cases []string) {
	verdicts := make([]conform.Verdict, 0, len(results))
	for _, r := range results {
		cases, verdicts = append(cases, r.ID), append(verdicts, r.Verdict)
	}
	slices.Sort(cases)
	return State(conform.RowVerdict(verdicts)), cases
}

// counts returns the numbers of clauses by level and state, without zeros.
func counts(clauses []Clause) (all []Count) {
	for _, level := range conform.Levels {
		for _, s := range states {
			n := 0
			for i := range clauses {
				if clauses[i].Level == level && clauses[i].State == s {
					n++
				}
			}
			if n > 0 {
				all = append(all, Count{Level: level, State: s, N: n})
			}
		}
	}
	return all
}

// outcome returns the overall result and a sentence that explains it. They depend on the MUST
// clauses and on whether all cases were run (not run.Part); the first case of the switch that
// applies decides. Stale means that a clause is met although a known deviation says otherwise.
func outcome(run *conform.Run, clauses []Clause) (o Outcome, why string) {
	n := make(map[State]int) // MUST clauses by state
	for i := range clauses {
		if clauses[i].Level == "MUST" {
			n[clauses[i].State]++
		}
	}
	testable := 0
	for s, inState := range n {
		if s != Untestable {
			testable += inState
		}
	}
	count := func(s State, what string) string {
		return fmt.Sprintf("of %d clauses of level MUST, %d %s", testable, n[s], what)
	}
	countAndRows := func(s State, what string) string { return count(s, what) + ": " + rowsIn(clauses, s) }
	switch {
	case n[Fail] > 0:
		return DoesNotConform, countAndRows(Fail, "not met")
	case n[Broken] > 0:
		return Incomplete, countAndRows(Broken, "could not be judged")
	case n[Stale] > 0:
		return Incomplete, countAndRows(Stale, "met though a deviation is on record, which is to be mended")
	case n[NotAsked] > 0:
		return Incomplete, countAndRows(NotAsked, "not asked about")
	case run.Part:
		return Incomplete, "only some of the cases were run"
	case n[Deviates] > 0:
		return WithDeviations, countAndRows(Deviates, "not met for reasons that are on record")
	}
	return Conforms, count(Pass, "met and none violated")
}

// place returns the section of a clause, followed by the IDs of compliance statements and test
// assertions that the section does not name.
func place(section string, ids []string) string {
	var parts []string
	if section != "" {
		parts = strings.Split(section, ", ")
	}
	for _, id := range ids {
		if !slices.Contains(parts, id) {
			parts = append(parts, id)
		}
	}
	return strings.Join(parts, ", ")
}

// maxNamed limits the clauses named in a sentence.
const maxNamed = 5

// rowsIn returns the first maxNamed MUST clauses in a state, as text, and the number of the others.
func rowsIn(clauses []Clause, s State) string {
	var rows []string
	for i := range clauses {
		if clauses[i].Level == "MUST" && clauses[i].State == s {
			row := clauses[i].Row
			if where := place(clauses[i].Clause, clauses[i].IDs); where != "" {
				row += " (" + where + ")"
			}
			rows = append(rows, row)
		}
	}
	if n := len(rows) - maxNamed; n > 0 {
		return strings.Join(rows[:maxNamed], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(rows, ", ")
}
