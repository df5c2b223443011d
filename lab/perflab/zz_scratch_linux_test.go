package perflab

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/fabrictest/fabrictest/perf"
)

func TestScratchPP(t *testing.T) {
	b := newBench(t)
	n, _ := strconv.Atoi(os.Getenv("N"))
	if n == 0 {
		n = 15
	}
	for _, blocking := range []bool{false, true} {
		if o := os.Getenv("ONLY"); o != "" && (o == "block") != blocking {
			continue
		}
		var d perf.Duel
		for range n {
			rounds := 10000
			if blocking {
				rounds = 3000
			}
			err := d.Round(t.Context(), perf.Measurement{Name: "raw", Measure: func(ctx context.Context) (float64, error) {
				return b.RawPingPong(ctx, blocking, rounds)
			}}, perf.Measurement{Name: "ours", Measure: func(ctx context.Context) (float64, error) {
				return b.Run(ctx, perf.Program{PingPong: &perf.PingPong{Rounds: rounds, Blocking: blocking, Confirmed: os.Getenv("CONF") != ""}}, false)
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		fmt.Printf("blocking=%v raw %.2f (min %.2f) ours %.2f (min %.2f) diff of min %.2f ratio %.2f  of mins %.2f noise %.2f spread %.2f\n", blocking, perf.Median(d.Limit.Values), slices.Min(append(d.Limit.Values, d.Again.Values...)),
			perf.Median(d.Device.Values), slices.Min(d.Device.Values), slices.Min(d.Device.Values)-slices.Min(append(d.Limit.Values, d.Again.Values...)), d.Ratio(), slices.Min(d.Device.Values)/slices.Min(append(d.Limit.Values, d.Again.Values...)), d.Noise(), d.Spread())
	}
}
