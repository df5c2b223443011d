package work_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/verbs"
)

// The testbed of Rashti 2010 ch. 3 and 4 in a simulated world: 10 Gb/s, and a small message
// takes 6.6 µs with verbs and 7 with MPI (Rashti 2010 §3.3, Fig. 3.3). The difference is CPU
// time of the library for every message sent and received. NICs have short queues,
// therefore later messages do not wait for all of a large one.
//
// Ranks use connections, whose completions wake a waiting rank. Rings do not: the polling
// interval, an eighth of the time waited, would be as long as the measured times.
const (
	testbedRate  = 10_000_000_000
	testbedCable = 3100 * time.Nanosecond // of two from host to host
	testbedQueue = 16 << 10
	messageCost  = (7000 - 6600) / 2 * time.Nanosecond
)

func testbed(ranks int) mpihost.Fabric {
	f := mpihost.Fabric{Ranks: ranks, Limit: time.Minute, Costs: &verbs.Costs{Message: messageCost}}
	f.Link.RateBps, f.Link.Latency, f.Link.TxQueueBytes = testbedRate, testbedCable, testbedQueue
	return f
}

// testbedOptions are the options for a protocol.
func testbedOptions(cfg p2p.Config, onFinalize func(int, mpi.Stats)) mpi.Options {
	return mpi.Options{P2P: cfg, OnFinalize: onFinalize, Carrier: carrier.Config{Design: carrier.SRQ, Reuse: memory.Reuse{Off: true}}}
}

var (
	rput        = p2p.Config{Protocol: p2p.RPUT}
	rget        = p2p.Config{Protocol: p2p.RGET}
	speculative = p2p.Config{Protocol: p2p.Speculative}
	adaptive    = p2p.Config{Protocol: p2p.Speculative, Adaptive: true}
)

// runOnTestbed runs a workload on the testbed, and returns its result and the statistics of
// all ranks.
func runOnTestbed(t *testing.T, name string, cfg p2p.Config, ranks int, p work.Params) (work.Result, p2p.Stats) {
	t.Helper()
	wl := must.Get(work.Find(name))(t)
	var all p2p.Stats
	results, _, err := inWorld(testbed(ranks), testbedOptions(cfg, func(_ int, s mpi.Stats) { addStats(&all, &s.P2P) }), wl, p)
	if err != nil {
		t.Fatalf("%s by %v: %v", name, cfg.Protocol, err)
	}
	return results[0], all
}

func addStats(all, s *p2p.Stats) {
	all.RTRsReceived += s.RTRsReceived
	all.RTRsUsed += s.RTRsUsed
	all.RTRsDropped += s.RTRsDropped
	all.RTRsCrossed += s.RTRsCrossed
	all.SpeculationStopped += s.SpeculationStopped
	all.SpeculationResumed += s.SpeculationResumed
	for k := range s.ControlMessages {
		all.ControlMessages[k] += s.ControlMessages[k]
	}
	for k := range s.Sent {
		all.Sent[k].Messages += s.Sent[k].Messages
		all.Sent[k].Bytes += s.Sent[k].Bytes
	}
}

// The testbed has the latency and bandwidth of Rashti 2010.
func TestTestbedLatencyAndBandwidth(t *testing.T) {
	r, _ := runOnTestbed(t, "pingpong", rget, 2, work.Params{Iterations: 20, Bytes: 8})
	if l := figure(t, r, "latency 8 B"); l < 6.6 || l > 7.4 {
		t.Errorf("8 bytes take %.2f us, not about 7", l)
	}
	r, _ = runOnTestbed(t, "pingpong", rget, 2, work.Params{Iterations: 5, Bytes: 1 << 20})
	if b := figure(t, r, "bandwidth 1048576 B"); b < 1050 || b > 1250 {
		t.Errorf("the bandwidth is %.0f MB/s, not about 1100", b)
	}
}
