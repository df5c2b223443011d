package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/peers"
)

// printed returns the output of ranks with a time per message.
func printed(seconds float64) string {
	var b strings.Builder
	for _, m := range pairMeasurements() {
		fmt.Fprintf(&b, "%s %g\n", m.name(), seconds)
	}
	return b.String()
}

func mustParse(t *testing.T, text string) turn {
	t.Helper()
	return must.Get(parseTurn(text, pairMeasurements()))(t)
}

func TestParseTurn(t *testing.T) {
	got := mustParse(t, printed(4e-6))
	figures := map[string]float64{}
	for _, m := range pairMeasurements() {
		figures[m.name()] = m.figure(got[m.name()])
	}
	for name, want := range map[string]float64{"pingpong:8": 4, "stream:64": 0.25, "stream:262144": 524.288} {
		if math.Abs(figures[name]-want) > 1e-9*want {
			t.Errorf("%s: %v, want %v", name, figures[name], want)
		}
	}
	for _, bad := range []string{"", "pingpong:8 4e-6\n", printed(0), printed(math.Inf(1)), printed(4e-6) + "out of memory\n"} {
		if _, err := parseTurn(bad, pairMeasurements()); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// Ours takes half of the peers' time with ICRC, and the same without it.
func TestRatiosUseTurnsOfSameRound(t *testing.T) {
	const other = "iperf3"
	onlyOne := pairMeasurements()[len(pairMeasurements())-1].name() // that the other peer has
	var rounds []round
	for _, pace := range []float64{1, 3, 2} { // of the machine; it cancels out
		theirs := func(share float64) map[string]turn {
			all := mustParse(t, printed(share*pace*4e-6))
			return map[string]turn{mpich: all, other: {onlyOne: all[onlyOne]}}
		}
		rounds = append(rounds, round{
			Before: theirs(1), After: theirs(1),
			Ours: mustParse(t, printed(pace*2e-6)), NoICRC: mustParse(t, printed(pace*4e-6)),
		})
	}
	r := peers.Run{Comparisons: compare(pairMeasurements(), rounds, []string{mpich, other})}
	if want := len(pairMeasurements()) + 1; len(r.Comparisons) != want {
		t.Errorf("%d comparisons, want %d", len(r.Comparisons), want)
	}
	for _, c := range r.Comparisons {
		want := 2.0
		if c.Unit == "µs" {
			want = 0.5
		}
		if math.Abs(c.Ratio-want) > 1e-9 || math.Abs(c.RatioNoICRC-1) > 1e-9 || c.Noise != 0 {
			t.Errorf("%s: ratios %v and %v, noise %v; want %v, 1 and 0", c.Name, c.Ratio, c.RatioNoICRC, c.Noise, want)
		}
		wantVerdict := perf.Holds
		switch {
		case c.Peer == other, strings.Contains(c.Name, "trip, 16 KiB"), strings.Contains(c.Name, "trip, 64 KiB"):
			wantVerdict = ""
		case c.Unit == "M/s":
			wantVerdict = perf.Missed // the target is 4 times MPICH's rate
		}
		if c.Verdict != wantVerdict {
			t.Errorf("%s: verdict %q, want %q", c.Name, c.Verdict, wantVerdict)
		}
	}
	if !r.Missed() {
		t.Error("no target is missed")
	}
}
