package simlab

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// parse parses a scenario; it adds the first lines.
func parse(t testing.TB, text string) *scenarios.Scenario {
	t.Helper()
	text = "version: 1\nname: test\ntitle: A test\n" + text
	s, err := scenarios.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func play(t testing.TB, text string, opts lab.Options) *report.Result {
	t.Helper()
	return Run(context.Background(), parse(t, text), opts)
}

// passes runs a scenario that must pass.
func passes(t testing.TB, text string) *report.Result {
	t.Helper()
	r := play(t, text, lab.Options{})
	if r.Verdict != report.Passed {
		t.Errorf("%s: %s\n%s\n%s", r.Verdict, r.Reason, r.Detail, text)
		for _, c := range r.Checks {
			t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
		}
	}
	return r
}

func check(r *report.Result, name string) report.Check {
	i := slices.IndexFunc(r.Checks, func(c report.Check) bool { return c.Name == name })
	if i < 0 {
		return report.Check{}
	}
	return r.Checks[i]
}

func red(r *report.Result) (names []string) {
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// cable returns the counters of one direction of a cable.
func cable(t testing.TB, r *report.Result, from, to string) report.Link {
	t.Helper()
	for _, l := range r.Links {
		if l.From == from && l.To == to {
			return l
		}
	}
	var names []string
	for _, l := range r.Links {
		names = append(names, l.From+">"+l.To)
	}
	t.Fatalf("no link from %s to %s, but %s", from, to, strings.Join(names, ", "))
	return report.Link{}
}
