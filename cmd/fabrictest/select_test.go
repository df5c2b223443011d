package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/scenarios"
)

func TestPatternsAndTagsSelect(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	all, err := scenarios.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	standard := func(s *scenarios.Scenario) bool { return slices.Contains(s.Tags, standardTag) }
	for _, c := range []struct {
		selection
		want func(*scenarios.Scenario) bool
	}{
		{selection{}, standard},
		{selection{patterns: []string{"*"}}, func(*scenarios.Scenario) bool { return true }},
		{selection{patterns: []string{"loss-*", "pingpong"}}, func(s *scenarios.Scenario) bool {
			return strings.HasPrefix(s.Name, "loss-") || s.Name == "pingpong"
		}},
		{selection{tags: []string{"loss", "standard"}}, func(s *scenarios.Scenario) bool {
			return slices.Contains(s.Tags, "loss") && standard(s)
		}},
		{selection{patterns: []string{"*"}, tags: []string{"quick"}}, func(s *scenarios.Scenario) bool { return slices.Contains(s.Tags, "quick") }},
	} {
		got, err := c.find()
		want := 0
		for _, s := range all {
			if c.want(s) {
				want++
			}
		}
		if err != nil || len(got) != want || want == 0 {
			t.Errorf("%+v: %d scenarios, %v; want %d", c.selection, len(got), err, want)
			continue
		}
		for _, s := range got {
			if !c.want(s.Scenario) || s.given != s.Name {
				t.Errorf("%+v selects %s, given as %s", c.selection, s.Name, s.given)
			}
		}
	}
	missing := selection{patterns: []string{mine}}
	if _, err := missing.find(); err == nil || !strings.Contains(err.Error(), "mine.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}
