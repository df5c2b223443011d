package lab

import (
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
)

// Links has the counters of both directions of every cable.
type Links struct {
	plan *Plan
	All  []report.Link // two for each cable: from A, then from B
}

// NewLinks returns links with all counters zero.
func NewLinks(plan *Plan) *Links {
	l := &Links{plan: plan, All: make([]report.Link, 2*len(plan.Topology.Cables))}
	for i, c := range plan.Topology.Cables {
		impaired := plan.ImpairsCable(i)
		l.All[2*i] = report.Link{From: cableEndName(c.A), To: cableEndName(c.B), Impaired: impaired, RateBps: c.Link.RateBps}
		l.All[2*i+1] = report.Link{From: cableEndName(c.B), To: cableEndName(c.A), Impaired: impaired, RateBps: c.Link.RateBps}
	}
	return l
}

func cableEndName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}

// At returns the directions from a port and to it.
func (l *Links) At(port int) (out, in *report.Link) {
	p := &l.plan.Ports[port]
	out, in = &l.All[2*p.Cable], &l.All[2*p.Cable+1]
	if !l.plan.Topology.Cables[p.Cable].A.Same(p.Port) {
		out, in = in, out
	}
	return out, in
}

// AddLost adds n packets lost for a cause.
func AddLost(l *report.Link, cause string, n uint64) {
	if n == 0 {
		return
	}
	if l.Lost == nil {
		l.Lost = make(map[string]uint64)
	}
	l.Lost[cause] += n
}

// AddPipeCounters adds the counters of the impairments of one direction.
func AddPipeCounters(l *report.Link, c impair.Counters) {
	AddLost(l, "loss", c.Lost)
	AddLost(l, "burst", c.LostInBurst)
	AddLost(l, "rate_queue_full", c.Overflowed)
	AddLost(l, "event", c.EventsDropped)
	l.Duplicated += c.Duplicated
	l.Reordered += c.Reordered
	l.Corrupted += c.Corrupted + c.Truncated
	l.Marked += c.Marked
}
