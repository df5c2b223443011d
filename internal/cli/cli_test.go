package cli

import (
	"strings"
	"testing"
	"time"
)

func TestChoices(t *testing.T) {
	for want, choices := range map[string][]string{"a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := Choices(choices); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSimilarOrdersByEditDistance(t *testing.T) {
	known := []string{"rc/clean", "rc/loss", "uc/loss", "ud/loss", "rc/bursts", "xrc/loss", "run", "on", "seed"}
	for input, want := range map[string]string{
		"rc/los": "rc/loss xrc/loss uc/loss", "RC/LOSS": "rc/loss xrc/loss uc/loss ud/loss", "burst": "rc/bursts",
		"rnu": "run", // a swap counts as one edit
		"sed": "seed", "nonsense": "",
		"foo": "", "x": "", "": "", // too short, or similar to nothing
	} {
		if got := strings.Join(Similar(input, known), " "); got != want {
			t.Errorf("Similar(%q) = %q, want %q", input, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"loss", "loss", 0},
		{"los", "loss", 1},
		{"lsot", "lost", 1},
		{"kitten", "sitting", 3},
		{"abcd", "badc", 2},
	} {
		if got := EditDistance(c.a, c.b); got != c.want || EditDistance(c.b, c.a) != c.want {
			t.Errorf("EditDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestSimilarIsFastForLongInput(t *testing.T) {
	began := time.Now()
	if got := Similar(strings.Repeat("x", 1<<20), []string{"run", "seed", "exec"}); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("Similar took %v", took)
	}
}
