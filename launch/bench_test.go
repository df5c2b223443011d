package launch_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
)

// BenchmarkGroup measures start, join, report and end of a group.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			specs := make([]launch.Spec, n)
			for i := range specs {
				specs[i] = roleSpec(i, "memory", "0")
			}
			for b.Loop() {
				g := must.Get(launch.Start(b.Context(), specs, launch.Options{}))(b)
				must.Do(b, must.Err(g.Wait()))
			}
		})
	}
}

// BenchmarkRoundTrip measures the round trip of a 64-byte message between two ranks.
func BenchmarkRoundTrip(b *testing.B) {
	g := must.Get(launch.Start(b.Context(), []launch.Spec{roleSpec(0, "ping", itoa(b.N)), roleSpec(1, "echo")}, launch.Options{}))(b)
	outcomes := must.Get(g.Wait())(b)
	ns := must.Get(strconv.ParseFloat(string(outcomes[0].Report), 64))(b)
	b.ReportMetric(ns/float64(b.N), "ns/op")
}
