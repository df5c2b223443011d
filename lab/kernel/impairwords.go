package kernel

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// ParseImpairment reads the impairments of a guest's link from words of a command line, as
// scenarios.ImpairText does. Error messages call the link known.
func ParseImpairment(known string, words []string) (m Impairment, err error) {
	const port = "host0"
	text, err := scenarios.ImpairText(scenarios.Fabric{Kind: scenarios.Star, Hosts: 2}, port, known, words)
	if err != nil {
		return m, err
	}
	sc, err := scenarios.Parse("set.yaml", []byte(text))
	if err != nil {
		return m, err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return m, scenarios.ImpairError(err, known, words)
	}
	for i := range plan.Ports {
		if p := &plan.Ports[i]; p.Node == port {
			return Impairment{Out: p.Out.Specs, In: p.In.Specs}, nil
		}
	}
	return m, fmt.Errorf("%s: a fabric without a port", known)
}

// ParseImpairFlag reads the value of --impair: the words of ParseImpairment in one.
func ParseImpairFlag(text string) (Impairment, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Impairment{}, nil
	}
	return ParseImpairment("--impair", words)
}

// String describes a link that is down, impaired or has lost packets; it is empty for any
// other.
func (l *Link) String() string {
	var parts []string
	if l.Down {
		parts = append(parts, "link down")
	}
	if l.Broken != "" {
		parts = append(parts, l.Broken)
	}
	if !l.Empty() {
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
