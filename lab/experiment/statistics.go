package experiment

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// statistics returns the statistics of all ranks as figures: counts, means, and shares in per cent.
// It leaves out shares of a total of 0, such as that of used RTRs (by which a receiver announces its
// buffer) if none was received. bytes is the size of messages; 0 if they have several.
func statistics(all []mpi.Stats, bytes int) []work.Figure {
	var t totals
	for i := range all {
		c, _ := all[i].Carrier.(carrier.Stats)
		t.add(&all[i].P2P, &c)
	}
	return t.figures(len(all), bytes)
}

// totals are sums over all ranks.
type totals struct {
	rtrs, rtrsUsed, rtrsCrossed, stopped float64
	stopUsages, resumeUsages             []float64 // of ranks that stopped or resumed RTRs
	extraBytes, messageBytes             float64   // extra: of control messages that only speculation sends
	memory, largestMemory                float64   // registered, at most
	connections, rings                   float64
	lowWatermark, registrations          float64
	reuse                                memory.ReuseStats
	thresholds                           memory.Thresholds
	reusePaysFrom                        int // bytes of a message
}

// add adds the statistics of a rank: s of its messages, c of its transport.
func (t *totals) add(s *p2p.Stats, c *carrier.Stats) {
	t.rtrs += float64(s.RTRsReceived)
	t.rtrsUsed += float64(s.RTRsUsed)
	t.rtrsCrossed += float64(s.RTRsCrossed)
	t.stopped += float64(s.SpeculationStopped)
	if s.SpeculationStopped > 0 {
		t.stopUsages = append(t.stopUsages, s.StopUsage)
	}
	if s.SpeculationResumed > 0 {
		t.resumeUsages = append(t.resumeUsages, s.ResumeUsage)
	}
	t.extraBytes += float64(s.RTRsDropped)*controlBytes(wire.RTR) +
		float64(s.ControlMessages[wire.RTRAck])*controlBytes(wire.RTRAck) + float64(s.ControlMessages[wire.RTSAck])*controlBytes(wire.RTSAck)
	t.messageBytes += float64(s.Sent[p2p.Eager].Bytes + s.Sent[p2p.Rendezvous].Bytes)
	registered := 0.0
	for _, n := range c.Memory.Max {
		registered += float64(n)
	}
	t.memory += registered
	t.largestMemory = max(t.largestMemory, registered)
	t.connections += float64(c.MaxConnections)
	t.rings += float64(c.Rings)
	t.lowWatermark += float64(c.LowWatermark)
	t.registrations += float64(c.Registrations.Misses)
	t.reuse.Uses += c.Reuse.Uses
	t.reuse.FrequentUses += c.Reuse.FrequentUses
	t.reuse.Buffers += c.Reuse.Buffers
	t.reuse.FrequentBuffers += c.Reuse.FrequentBuffers
	t.reuse.CopiedUses += c.Reuse.CopiedUses
	t.thresholds, t.reusePaysFrom = c.ReuseThresholds, c.ReusePaysFrom // settings, the same for all ranks
}

// controlBytes is the size of a control message, such as an RTR, in a packet of its own: the prefix
// that every packet of the runtime has, and the header, which describes memory on one rail.
func controlBytes(k wire.Kind) float64 {
	var e wire.Encoder
	return float64(carrier.PrefixLen + len(e.Append(nil, &wire.Header{Kind: k, Memory: wire.Memory{Rails: 1}})))
}

// figures returns the figures of an experiment: counts of all ranks together, or means of a rank.
// It leaves out a share of a total of 0. bytes is the size of messages. The extra volume is that of
// the control messages that only speculation sends: RTRs (the receiver is ready) that no send used,
// and acknowledgements of RTRs and of RTSs (the sender is ready). The uses before registration are
// how often a buffer was copied before it was registered, in per cent of the reuse threshold: the
// mean of the buffers that reached it. The usage at a stop is the largest share of used RTRs after
// which a rank stopped them, that at a resume the smallest that would have been used.
func (t *totals) figures(ranks, bytes int) (all []work.Figure) {
	add := func(name string, v float64, unit string) {
		all = append(all, work.Figure{Name: name, Value: v, Unit: unit})
	}
	share := func(name string, part, of float64) {
		if of > 0 {
			add(name, 100*part/of, "%")
		}
	}
	share("RTRs used", t.rtrsUsed, t.rtrs)
	add("RTRs", t.rtrs, "RTRs")
	add("RTRs crossed", t.rtrsCrossed, "RTRs")     // by the RTS of their message
	add("speculation stopped", t.stopped, "times") // receivers that stopped to send RTRs
	if len(t.stopUsages) > 0 {
		add("usage at stop", slices.Max(t.stopUsages), "%")
	}
	if len(t.resumeUsages) > 0 {
		add("usage at resume", slices.Min(t.resumeUsages), "%")
	}
	share("extra volume", t.extraBytes, t.messageBytes)
	add("memory", t.memory/float64(ranks)/1e6, "MB")
	add("largest memory", t.largestMemory/1e6, "MB")
	add("connections", t.connections/float64(ranks), "connections")
	add("rings", t.rings/float64(ranks), "rings")  // that peers write to
	add("low watermark", t.lowWatermark, "events") // of the shared receive queue
	add("registrations", t.registrations, "regions")
	add("buffers", float64(t.reuse.Buffers), "buffers")
	share("frequent buffers", float64(t.reuse.FrequentBuffers), float64(t.reuse.Buffers))
	share("frequent uses", float64(t.reuse.FrequentUses), float64(t.reuse.Uses))
	if n := t.thresholds.ForSize(bytes); n != memory.Never {
		add("reuse threshold", float64(n), "uses")
		share("uses before registration", float64(t.reuse.CopiedUses), float64(t.reuse.FrequentBuffers*n))
	}
	if t.reusePaysFrom > 0 {
		add("reuse pays from", float64(t.reusePaysFrom), "B")
	}
	return all
}
