// Package certificate writes and verifies the certificate of a device: its identity, the
// configuration of the test, the state of every clause, the captures as evidence, and a
// manifest with hashes. The states follow by fixed rules from the results of the cases;
// [Verify] derives them again.
package certificate

import (
	"time"

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
	State  State  `json:"state"`
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

// levels are in the order of their weight.
var levels = []string{"MUST", "SHOULD", "MAY"}
