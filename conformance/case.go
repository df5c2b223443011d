package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// Case is one thing that a device has to do.
type Case struct {
	// ID never changes and is never used again: area/topic/behaviour, as in
	// "rc/psn/duplicate-send-delivered-once".
	ID string
	// Title is what the device must do, in a sentence.
	Title string
	Cite  Cite
	Level Level
	// Needs are the capabilities without which the case says nothing.
	Needs verbs.Caps
	// Setup is how the device has to be set up.
	Setup Setup
	// Labels sort cases: "service:rc", [Dangerous], [Slow].
	Labels []string
	// Sends and Expects tell people what the judge does and what it wants to see.
	Sends, Expects string
	// Mutants are defects of an emulated device, each of which makes the case fail.
	// A case without one is unproven.
	Mutants []string
	// Run is the case. It returns nil if the clause is met, a [*Violation] if it is
	// not, and anything else if the case could not be run.
	Run func(*Bench) error
}

// Dangerous labels cases that can crash or wedge a real device. They run only when
// asked for.
const Dangerous = "dangerous"

// Slow labels cases that wait for timers of five seconds or more, or take much memory or
// very many steps. In a simulated world most are as quick as others.
const Slow = "slow"

// Dangerous reports whether the case may harm a real device.
func (c *Case) Dangerous() bool { return slices.Contains(c.Labels, Dangerous) }

// Area is the first part of the case's ID.
func (c *Case) Area() string {
	area, _, _ := strings.Cut(c.ID, "/")
	return area
}

// Cite says where a requirement stands.
type Cite struct {
	// Doc is the document: "RFC 5040", "IBTA", "Annex A17", "datagram-iWARP".
	Doc string
	// Section is the section or the compliance statement in it; empty if it is not
	// publicly known.
	Section string
	// Rows are the rows of the ledger that the case covers.
	Rows []string
}

// String prints document and section.
func (c Cite) String() string {
	if c.Section == "" {
		return c.Doc
	}
	return c.Doc + " " + c.Section
}

// Level is how strongly a requirement is meant.
type Level string

// The levels of RFC 2119. A case of level May checks that what a device may do, if
// it does, is done well.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
	May    Level = "MAY"
)

// Setup is how a device has to be set up for a case. The zero value is a device as
// it comes. One that cannot be set up so does not support the case.
type Setup struct {
	// Family is the IP family that the bench talks, 4 or 6; 0 leaves it to the lab.
	Family int
	// TwoAddresses: the device has two addresses of that family.
	TwoAddresses bool
	// Markers: an iWARP device asks its peers for MPA markers.
	Markers bool
	// NoCRC: an iWARP device does not ask for CRCs.
	NoCRC bool
	// Reliable: the queue pairs of a datagram-iWARP device are those of RD.
	Reliable bool
	// Isolate: those of a datagram-iWARP device survive what a peer does wrong.
	Isolate bool
	// MTU is the largest IP packet of the cable; 0 for what the lab has, which is
	// enough for a path MTU of 4096.
	MTU int
}

// Suite is the cases of a protocol.
type Suite struct {
	// Name is that of the protocol: "roce", "iwarp", "dgiwarp", "verbs".
	Name  string
	Title string
	Cases []Case
	// Line tells an event of the wire in a few words.
	Line func(*Event) string
}

// Check looks for cases that are not well formed.
func (s *Suite) Check() (errs []error) {
	seen := make(map[string]bool)
	for i := range s.Cases {
		c := &s.Cases[i]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("case %s: "+format, append([]any{c.ID}, args...)...))
		}
		switch {
		case strings.Count(c.ID, "/") < 2 || strings.ToLower(c.ID) != c.ID || strings.ContainsAny(c.ID, " _*"):
			bad("the ID must be area/topic/behaviour, in lower case with hyphens")
		case seen[c.ID]:
			bad("the ID is taken")
		}
		seen[c.ID] = true
		if c.Title == "" || c.Sends == "" || c.Expects == "" {
			bad("Title, Sends and Expects tell people what it does")
		}
		if c.Cite.Doc == "" || len(c.Cite.Rows) == 0 {
			bad("it cites no document, or no row of the ledger")
		}
		if c.Level != Must && c.Level != Should && c.Level != May {
			bad("level %q is none", c.Level)
		}
		if len(c.Mutants) == 0 {
			bad("it names no mutant: a case that nothing can make fail proves nothing")
		}
		if c.Run == nil {
			bad("it has no body")
		}
	}
	return errs
}
