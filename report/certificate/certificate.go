// Package certificate is the file that a certification of a device leaves behind: who
// was judged by whom and how, the verdict on every clause, the packets that prove it,
// and hashes that hold it together. It judges nothing: the verdicts are drawn from
// the results of the cases by rules that are written here, and can be drawn again
// from the same results by whoever doubts them ([Verify]).
package certificate

import (
	"time"

	"github.com/fabrictest/fabrictest/report/conform"
)

// Version is that of certificate.json's layout.
const Version = 1

// Certificate is what is known of a device.
type Certificate struct {
	Version int     `json:"version"` // of this layout
	Outcome Outcome `json:"outcome"` // of all clauses
	// Why is the outcome in a sentence.
	Why     string  `json:"why"`
	Subject Subject `json:"subject"`
	Judge   Judge   `json:"judge"`
	// Counts are the clauses by level and by what came of them.
	Counts []Count `json:"counts"`
	// Clauses are those of the documents that the device falls under.
	Clauses []Clause `json:"clauses"`
	// Run holds the results of the cases, from which the rest was drawn. It has the
	// one device.
	Run conform.Run `json:"run"`
}

// Outcome is what is said of a device as a whole.
type Outcome string

// The outcomes.
const (
	// Conforms: every clause of level MUST that applies is met.
	Conforms Outcome = "conforms"
	// WithDeviations: those that are not are on record, each with its reason.
	WithDeviations Outcome = "conforms-with-deviations"
	// DoesNotConform: some are not met.
	DoesNotConform Outcome = "does-not-conform"
	// Incomplete: nothing that was asked speaks against the device, but not
	// everything was asked.
	Incomplete Outcome = "incomplete"
)

// Subject is the device and the host that it is in.
type Subject struct {
	Device    string `json:"device"`             // as its host calls it
	Kind      string `json:"kind,omitempty"`     // whose deviations apply, as in rxe-6.12
	Transport string `json:"transport"`          // RoCEv2, iWARP or datagram-iWARP
	Driver    string `json:"driver,omitempty"`   // and its version, where it has one
	Firmware  string `json:"firmware,omitempty"` // as the device tells it
	VendorID  uint32 `json:"vendor_id"`
	PartID    uint32 `json:"part_id"`
	GUID      string `json:"guid"`
	// Claims are the capabilities that it claims.
	Claims []string `json:"claims"`
	// Addresses are those that it was judged at.
	Addresses []string `json:"addresses"`
	Host      string   `json:"host,omitempty"` // its name
	Kernel    string   `json:"kernel,omitempty"`
	Library   string   `json:"library,omitempty"` // through which it was driven
}

// Judge is the other end of the wire.
type Judge struct {
	// Wire is how the judge reached it, as in "AF_PACKET on eth1".
	Wire string `json:"wire"`
	// Blind is what the judge could neither see nor set by that; empty if there is
	// nothing.
	Blind     []string  `json:"blind,omitempty"`
	Addresses []string  `json:"addresses"`
	Agent     string    `json:"agent,omitempty"` // where the device's host was asked
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
}

// Count is how many clauses of a level met the same fate.
type Count struct {
	Level string `json:"level"`
	State State  `json:"state"`
	N     int    `json:"n"`
}

// Clause is a requirement, and what came of it.
type Clause struct {
	Row    string `json:"row"` // of the ledger
	Level  string `json:"level"`
	Clause string `json:"clause,omitempty"` // where it stands
	State  State  `json:"state"`
	// Cases are those that were run for it.
	Cases []string `json:"cases,omitempty"`
}

// State is the worst of what the cases of a clause said, or why none said anything.
type State string

// The states. The first six are the verdicts of cases.
const (
	Broken      State = State(conform.Broken)
	Fail        State = State(conform.Fail)
	Stale       State = State(conform.Stale)
	Deviates    State = State(conform.Deviates)
	Pass        State = State(conform.Pass)
	Unsupported State = State(conform.Unsupported)
	NotAsked    State = "not-asked"  // no case of it was run
	Untestable  State = "untestable" // no case can be
)

// states are all of them, the worst first.
var states = []State{Broken, Fail, Stale, Deviates, NotAsked, Pass, Unsupported, Untestable}

// levels are in the order of their weight.
var levels = []string{"MUST", "SHOULD", "MAY"}
