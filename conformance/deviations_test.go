package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestParseRejectsInvalidDeviations(t *testing.T) {
	if known, err := DeviationsOf("unknown", "sim"); known != nil || err != nil {
		t.Errorf("a device without a file: %v, %v", known, err)
	}
	if known, err := DeviationsOf("rxe-6.12", "sim"); len(known) == 0 || err != nil {
		t.Errorf("a device with a file: %v, %v", known, err)
	}
	for text, want := range map[string]string{
		"a/b/c: {}":                        `the key "reason" is missing`,
		"a/b/c: {reason: x, why: y}":       "field why not found",
		"- a/b/c":                          "each key must be the ID of a case",
		"a/b/c: {reason: x, on: hardware}": `the key "on" must be one of sim, netns, wire, not "hardware"`,
	} {
		if _, err := ParseDeviations([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestOnSelectsDeviationsOfTheTier(t *testing.T) {
	known, err := ParseDeviations([]byte(`
a/b/everywhere: {reason: it cannot, seen-on: firmware 7, link: a page}
a/b/sockets: {reason: a socket does not tell, on: netns}
a/b/worlds: {reason: no world has it, on: sim}
a/b/cables: {reason: what was there before is sent, on: wire, sometimes: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	for tier, want := range map[string][]string{
		"sim":   {"a/b/everywhere", "a/b/worlds"},
		"netns": {"a/b/everywhere", "a/b/sockets"},
		"wire":  {"a/b/cables", "a/b/everywhere"},
	} {
		got := known.On(tier)
		if ids := slices.Sorted(maps.Keys(got)); !slices.Equal(ids, want) {
			t.Errorf("on %s: %v, want %v", tier, ids, want)
		}
		if d := got["a/b/everywhere"]; d.Reason != "it cannot (seen on firmware 7) (see a page)" || d.Intermittent {
			t.Errorf("on %s: %+v", tier, d)
		}
		if d := got["a/b/cables"]; tier == "wire" && (d.Reason != "what was there before is sent (at times)" || !d.Intermittent) {
			t.Errorf("on %s: %+v", tier, d)
		}
	}
}
