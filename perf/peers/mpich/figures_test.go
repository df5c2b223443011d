package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/perf"
)

// printed returns the output of ranks with a time per message.
func printed(seconds float64) string {
	var b strings.Builder
	for _, m := range measurements() {
		fmt.Fprintf(&b, "%s %g\n", m.Name, seconds)
	}
	return b.String()
}

func mustParse(t *testing.T, text string) turn {
	t.Helper()
	return must.Get(parseTurn(text))(t)
}

func TestParseTurn(t *testing.T) {
	got := mustParse(t, printed(4e-6))
	for name, want := range map[string]float64{"pingpong:8": 4, "stream:64": 0.25, "stream:262144": 524.288} {
		if math.Abs(got[name]-want) > 1e-9*want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	for _, bad := range []string{"", "pingpong:8 4e-6\n", printed(0), printed(math.Inf(1)), printed(4e-6) + "out of memory\n"} {
		if _, err := parseTurn(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// Ours takes half of MPICH's time with ICRC, and the same without it.
func TestRatiosUseTurnsOfSameRound(t *testing.T) {
	var rounds []round
	for _, pace := range []float64{1, 3, 2} { // of the machine; it cancels out
		rounds = append(rounds, round{
			MPICH: mustParse(t, printed(pace*4e-6)), MPICHAgain: mustParse(t, printed(pace*4e-6)),
			Ours: mustParse(t, printed(pace*2e-6)), NoICRC: mustParse(t, printed(pace*4e-6)),
		})
	}
	r := result{Comparisons: compare(rounds)}
	for _, c := range r.Comparisons {
		want := 2.0
		if c.Unit == "µs" {
			want = 0.5
		}
		if math.Abs(c.Ratio-want) > 1e-9 || math.Abs(c.RatioNoICRC-1) > 1e-9 || c.Noise != 0 {
			t.Errorf("%s: ratios %v and %v, noise %v; want %v, 1 and 0", c.Name, c.Ratio, c.RatioNoICRC, c.Noise, want)
		}
		if c.Verdict != perf.Holds {
			t.Errorf("%s: %s, want %s", c.Name, c.Verdict, perf.Holds)
		}
	}
	if !r.missed() { // the targets without ICRC are higher
		t.Error("no target is missed")
	}
}
