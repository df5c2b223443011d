package simlab

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// A slow receiver with a connection on each of two rails posts receives on both.
// The pauses of a rank share one timer. The delay determines which connection ends
// first.
func TestPauseEndsOnEveryRail(t *testing.T) {
	for _, service := range []string{"rc", "srq"} {
		for _, way := range []string{"in", "out", "both"} {
			for _, delay := range []string{"1ms", "2ms", "3ms", "4ms", "6ms"} {
				text := "fabric: {kind: star, hosts: 2, rails: 2}\n" +
					fmt.Sprintf("impair: [{on: [host1/rdma1], way: %s, delay: %s}]\n", way, delay) +
					fmt.Sprintf("workload: {kind: stream, op: send, services: [%s], messages: 300, bytes: 4KiB, pause: 5ms, timeout: 30ms}\n", service)
				t.Run(fmt.Sprint(service, " ", way, " ", delay), func(t *testing.T) {
					t.Parallel()
					passes(t, text)
				})
			}
		}
	}
}

// With loss, the seed determines in which order the pauses of two rails end.
func TestPauseEndsForEverySeed(t *testing.T) {
	const text = "fabric: {kind: star, hosts: 2, rails: 2}\nimpair: [{on: [host1/rdma0], way: in, loss: 3%}]\n" +
		"workload: {kind: stream, op: send, messages: 200, bytes: 1KiB, pause: 2ms, timeout: 5ms}\n"
	for seed := uint64(1); seed <= 40; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if r := play(t, text, lab.Options{Seed: seed}); r.Verdict != report.Passed {
				t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
			}
		})
	}
}
