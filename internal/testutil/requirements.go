package testutil

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Requirements has a test for each requirement of a specification, by the number of the
// requirement.
type Requirements map[string]func(*testing.T)

// Join merges tables. A key may list several requirements, each of which has one test.
func Join(parts ...map[string]func(*testing.T)) Requirements {
	all := Requirements{}
	for _, part := range parts {
		for ids, test := range part {
			for _, id := range strings.Fields(ids) {
				if all[id] != nil {
					panic("two tests for " + id)
				}
				all[id] = test
			}
		}
	}
	return all
}

// Run runs the tests.
func (r Requirements) Run(t *testing.T) {
	for _, id := range slices.Sorted(maps.Keys(r)) {
		t.Run(id, r[id])
	}
}

// ExpectComplete checks that every requirement has either a test or a reason in elsewhere.
// sections has the number of requirements in each section.
func (r Requirements) ExpectComplete(t *testing.T, sections map[string]int, elsewhere map[string]string) {
	t.Helper()
	known := map[string]bool{}
	for section, n := range sections {
		for i := 1; i <= n; i++ {
			id := fmt.Sprintf("%s/%d", section, i)
			known[id] = true
			if _, reason := elsewhere[id]; (r[id] != nil) == reason {
				t.Errorf("%s: want a test or a reason why there is none, and not both", id)
			}
		}
	}
	for id := range r {
		if !known[id] {
			t.Errorf("%s: no such requirement", id)
		}
	}
	for id, why := range elsewhere {
		if !known[id] || strings.TrimSpace(why) == "" {
			t.Errorf("%s: no such requirement, or no reason", id)
		}
	}
}
