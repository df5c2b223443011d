package main

import (
	"fmt"

	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/peers"
	"github.com/fabrictest/fabrictest/scenarios"
)

// The kinds of measurements of collective operations.
const (
	allgather     = "allgather"
	alltoall      = "alltoall"
	allreduce     = "allreduce"
	reduceScatter = "reducescatter"
	bcast         = "bcast"
)

// collectiveKinds are the kinds, in the order of the table.
var collectiveKinds = []string{allgather, alltoall, allreduce, reduceScatter, bcast}

// collectiveTargets returns the targets of collective operations beside MPICH: the share of points at which
// ours are faster, and the largest ratio of our time to that of MPICH at any point.
func collectiveTargets(cable scenarios.CableKind) (fasterShare, maxTime float64) {
	if cable == scenarios.SharedMemory {
		return 1, 1
	}
	return 0.8, 1.3
}

// collectiveMeasurements returns the measurements of collective operations of a number of ranks. The
// size is that of a block of allgather, all-to-all and reduce-scatter, and else of the vector.
func collectiveMeasurements(ranks int, cable scenarios.CableKind) (all []measurement) {
	_, maxTime := collectiveTargets(cable)
	for _, kind := range collectiveKinds {
		for _, s := range []struct {
			size  int
			title string
		}{{8, "8 B"}, {64, "64 B"}, {1 << 10, "1 KiB"}, {8 << 10, "8 KiB"}, {64 << 10, "64 KiB"}, {1 << 20, "1 MiB"}} {
			all = append(all, measurement{
				Kind: kind, Bytes: s.size, Ranks: ranks, Metric: kind, Title: fmt.Sprintf("%s, %d ranks, %s", kind, ranks, s.title), Unit: "µs", atMost: true,
				wantRatio: maxTime, wantRatioNoICRC: maxTime, figure: microseconds,
			})
		}
	}
	return all
}

// microseconds is the figure of a measurement whose unit is µs.
func microseconds(seconds float64) float64 { return seconds * 1e6 }

// summarize returns a summary for each peer of the comparisons, with and without ICRC.
func summarize(comparisons []peers.Comparison, cable scenarios.CableKind) (all []peers.Summary) {
	fasterShare, maxTime := collectiveTargets(cable)
	for _, p := range allPeers() {
		for _, withICRC := range []bool{true, false} {
			s := peers.Summary{Peer: p.name, WithICRC: withICRC}
			for _, c := range comparisons {
				if c.Peer != p.name {
					continue
				}
				ratio := c.Ratio
				if !withICRC {
					ratio = c.RatioNoICRC
				}
				s.Points++
				if ratio < 1 {
					s.Faster++
				}
				if ratio > s.Slowest {
					s.Slowest, s.SlowestName = ratio, c.Name
				}
			}
			if s.Points == 0 {
				continue
			}
			if hasTargets(p.name) {
				s.Target, s.Verdict = fmt.Sprintf("≥ %.0f %% and ≤ %.1f ×", 100*fasterShare, maxTime), perf.Missed
				if s.Share() >= fasterShare && s.Slowest <= maxTime {
					s.Verdict = perf.Holds
				}
			}
			all = append(all, s)
		}
	}
	return all
}
