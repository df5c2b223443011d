package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Impairment has the random impairments of a guest's link.
type Impairment struct {
	Out []impair.Spec `json:"out,omitempty"` // from the guest
	In  []impair.Spec `json:"in,omitempty"`  // to it
}

// Empty reports whether there are no impairments.
func (m Impairment) Empty() bool { return len(m.Out) == 0 && len(m.In) == 0 }

// check validates the impairments of both directions.
func (m Impairment) check() error {
	var errs []error
	for _, dir := range []struct {
		name  string
		specs []impair.Spec
	}{{"out", m.Out}, {"in", m.In}} {
		for i := range dir.specs {
			if err := dir.specs[i].Validate(); err != nil {
				errs = append(errs, fmt.Errorf("impairment %s[%d]: %w", dir.name, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Link is the state of a guest's link.
type Link struct {
	Down bool `json:"down,omitempty"`
	// Switched is true if the link passes through the user-space switch, from its
	// first impairment on.
	Switched bool `json:"switched,omitempty"`
	// Broken is the error of the switch, if it has failed.
	Broken string `json:"broken,omitempty"`
	Impairment
	// Sent and Received are the counters of a switched link, from and to the guest.
	Sent     LinkCounters `json:"sent,omitzero"`
	Received LinkCounters `json:"received,omitzero"`
}

// LinkCounters are the counters of one direction, while it is impaired.
type LinkCounters struct {
	Packets    uint64 `json:"packets,omitempty"` // that were impaired
	Lost       uint64 `json:"lost,omitempty"`
	Duplicated uint64 `json:"duplicated,omitempty"`
	Reordered  uint64 `json:"reordered,omitempty"`
	Corrupted  uint64 `json:"corrupted,omitempty"`
	Marked     uint64 `json:"marked,omitempty"`
	// Dropped counts the packets that the switch itself dropped.
	Dropped uint64 `json:"dropped,omitempty"`
}

// countersOf returns the counters of a direction from those of its impairments, and the number of
// packets that the switch itself dropped.
func countersOf(c impair.Counters, dropped uint64) LinkCounters {
	return LinkCounters{
		Packets: c.Offered, Lost: c.Lost + c.LostInBurst + c.Overflowed, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Corrupted: c.Corrupted + c.Truncated, Marked: c.Marked, Dropped: dropped,
	}
}

// ParseImpairment reads the impairments of a guest's link from words of a command line: "clean" for
// none, or KEY=VALUE. It makes a scenario of them, in whose fabric host0 stands for the guest.
// Error messages use linkName for the link.
func ParseImpairment(linkName string, words []string) (m Impairment, err error) {
	const port = "host0"
	text, err := scenarios.ImpairText(scenarios.Fabric{Kind: scenarios.Star, Hosts: 2}, port, linkName, words)
	if err != nil {
		return m, err
	}
	sc, err := scenarios.Parse("set.yaml", []byte(text))
	if err != nil {
		return m, err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return m, scenarios.ImpairError(err, linkName, words)
	}
	for i := range plan.Ports {
		if p := &plan.Ports[i]; p.Node == port {
			return Impairment{Out: p.Out.Specs, In: p.In.Specs}, nil
		}
	}
	return m, fmt.Errorf("%s: a fabric without a port", linkName)
}

// ParseImpairFlag parses the value of --impair: the words of ParseImpairment, separated by spaces.
func ParseImpairFlag(text string) (Impairment, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Impairment{}, nil
	}
	return ParseImpairment("--impair", words)
}

// String describes a link that is down, broken, impaired or has lost packets; "" for any other.
func (l *Link) String() string {
	var parts []string
	if l.Down {
		parts = append(parts, "link down")
	}
	if l.Broken != "" {
		parts = append(parts, l.Broken)
	}
	if !l.Impairment.Empty() {
		parts = append(parts, "link impaired")
	}
	for _, dir := range []struct {
		name string
		c    *LinkCounters
	}{{"out", &l.Sent}, {"in", &l.Received}} {
		if lost := dir.c.Lost + dir.c.Dropped; lost > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d packets lost %s", lost, dir.c.Packets, dir.name))
		}
	}
	return strings.Join(parts, ", ")
}
