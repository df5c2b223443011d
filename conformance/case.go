package conformance

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// Case checks one requirement of a specification on a device. Its body returns nil if the
// requirement is met, a [*Violation] if it is not, and any other error if it could not run.
type Case = CaseOf[func(*Bench) error]

// CaseOf checks one requirement of a specification. Body is the type of its program.
type CaseOf[Body any] struct {
	// ID is stable and never reused: area/topic/behaviour, as in
	// "rc/psn/duplicate-send-delivered-once".
	ID string
	// Title states the required behaviour of the device in a sentence.
	Title string
	Cite  Cite
	Level Level
	// Needs are the capabilities that the case requires.
	Needs verbs.Caps
	// Setup is the device configuration that the case requires.
	Setup Setup
	// Labels classify cases: "service:rc", [Dangerous], [Slow].
	Labels []string
	// Sends and Expects describe the actions of the peer or application, and the
	// expected behaviour, for readers.
	Sends, Expects string
	// Defects are defects of an emulated device. Each makes the case fail, which proves
	// that the case can fail.
	Defects []string
	// Run is the body.
	Run Body
}

// Dangerous labels cases that can crash or hang a real device. They run only on request.
const Dangerous = "dangerous"

// Slow labels cases that wait for timers of five seconds or more, or need much memory or
// many steps. Most are fast in the simulator.
const Slow = "slow"

// BenchHeaders labels cases about fields of IP and UDP headers that a simulated bench writes itself.
const BenchHeaders = "bench-headers"

// Dangerous reports whether the case may harm a real device.
func (c *CaseOf[Body]) Dangerous() bool { return slices.Contains(c.Labels, Dangerous) }

// Cite is the source of a requirement.
type Cite struct {
	// Doc is the document: "RFC 5040", [IBTA], "Annex A17", "datagram-iWARP".
	Doc string
	// Section is the section, or the public ID of a compliance statement; empty if none is public.
	Section string
	// Rows are the rows of the ledger, the list of requirements, that the case covers.
	Rows []string
}

// IBTA is the document of citations of the InfiniBand base specification. It is not public: a
// citation names a section or a compliance statement that others quote, or else the rows.
const IBTA = "IBTA"

// String returns the document and the section. If the section is one of [IBTA] that is not public,
// String says so and names the rows of the ledger.
func (c Cite) String() string {
	switch {
	case c.Section != "":
		return c.Doc + " " + c.Section
	case c.Doc != IBTA || len(c.Rows) == 0:
		return c.Doc
	case len(c.Rows) == 1:
		return IBTA + ", clause not public; row " + c.Rows[0]
	}
	return IBTA + ", clause not public; rows " + strings.Join(c.Rows, ", ")
}

// Short returns the citation for a column of a table: for [IBTA] without a section, the first row.
func (c Cite) Short() string {
	if c.Doc == IBTA && c.Section == "" && len(c.Rows) > 0 {
		return IBTA + ", row " + c.Rows[0]
	}
	return c.String()
}

// Level is the requirement level.
type Level string

// Requirement levels of RFC 2119. A case of level May checks an optional feature of
// devices that have it.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
	May    Level = "MAY"
)

// Setup is the configuration of a device or an MPI job. The zero value is the default.
type Setup struct {
	// Family is the IP version of the bench, 4 or 6; 0 lets the lab choose.
	Family int
	// TwoAddresses: the device has two addresses of the family.
	TwoAddresses bool
	// Markers: an iWARP device requests MPA markers from its peers.
	Markers bool
	// NoCRC: an iWARP device does not request MPA CRCs.
	NoCRC bool
	// Reliable: a datagram-iWARP device has reliable-datagram queue pairs.
	Reliable bool
	// Isolate: the queue pairs of a datagram-iWARP device survive errors of a peer.
	Isolate bool
	// Ranks is the number of MPI processes, and PerNode how many share a host (0 means 1).
	Ranks, PerNode int
	// MTU is the largest IP packet of the link; 0 for a default that fits a path MTU of 4096.
	MTU int
}

// Suite is the set of cases of a protocol.
type Suite struct {
	// Name is the protocol: "roce", "iwarp", "dgiwarp", "verbs".
	Name  string
	Title string
	Cases []Case
	// DescribeEvent formats an event of the wire as one line.
	DescribeEvent func(*Event) string
}

// Check returns an error for every malformed case.
func (s *Suite) Check() []error { return CheckCases(s.Cases) }

// CheckCases returns an error for every malformed case. Each case must cite the rows of the ledger
// (the list of requirements) that it checks.
func CheckCases[Body any](cases []CaseOf[Body]) (errs []error) {
	seen := make(map[string]bool)
	for i := range cases {
		c := &cases[i]
		addError := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("case %s: "+format, append([]any{c.ID}, args...)...))
		}
		switch {
		case strings.Count(c.ID, "/") < 2 || strings.ToLower(c.ID) != c.ID || strings.ContainsAny(c.ID, " _*"):
			addError("the ID must be area/topic/behaviour, in lower case with hyphens")
		case seen[c.ID]:
			addError("duplicate ID")
		}
		seen[c.ID] = true
		if c.Title == "" || c.Sends == "" || c.Expects == "" {
			addError("Title, Sends and Expects must not be empty")
		}
		if c.Cite.Doc == "" || len(c.Cite.Rows) == 0 {
			addError("Cite names no document, or no row of the ledger")
		}
		if c.Level != Must && c.Level != Should && c.Level != May {
			addError("unknown level %q", c.Level)
		}
		if len(c.Defects) == 0 {
			addError("Defects is empty: no defect proves that the case can fail")
		}
		if reflect.ValueOf(c.Run).IsNil() {
			addError("Run is nil")
		}
	}
	return errs
}

// Group is the metadata that the cases of a file or of a suite have in common.
type Group struct {
	// Needs and Labels are added to those of each case.
	Needs  verbs.Caps
	Labels []string
	// DefaultLabels are added to those of cases that have none.
	DefaultLabels []string
	// Setup is the configuration of cases that require none.
	Setup Setup
}

// Cases returns copies of the cases with the metadata of the group, like [WithGroup].
func (g Group) Cases(cases []Case) []Case { return WithGroup(g, cases) }

// WithGroup returns copies of cases, of any kind, with the needs and labels of the group added. A
// case without labels, setup or level gets DefaultLabels, the group's setup or Must.
func WithGroup[Body any](g Group, cases []CaseOf[Body]) []CaseOf[Body] {
	all := slices.Clone(cases)
	for i := range all {
		c := &all[i]
		c.Needs |= g.Needs
		if len(c.Labels) == 0 {
			c.Labels = g.DefaultLabels
		}
		c.Labels = slices.Concat(g.Labels, c.Labels)
		c.Level = cmp.Or(c.Level, Must)
		if c.Setup == (Setup{}) {
			c.Setup = g.Setup
		}
	}
	return all
}

// Protocol is the wire protocol of a device, by the name of its suite.
type Protocol string

// The protocols.
const (
	RoCE          Protocol = "roce"
	IWARP         Protocol = "iwarp"
	DatagramIWARP Protocol = "dgiwarp"
)
