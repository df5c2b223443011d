package perflab

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// BenchmarkMessages measures the simulation of SENDs of 64 B between two soft-RoCE NICs: the points of
// the curve "messages" of the simulation costs.
func BenchmarkMessages(b *testing.B) {
	n := max(b.N, 128) // more than are under way
	s := must.Get(simulateMessages(n, func() error { return nil }))(b)
	b.ReportMetric(float64(s.Packets)/b.Elapsed().Seconds(), "packets/s")
	b.ReportMetric(float64(s.Events)/float64(n), "events/op")
}
