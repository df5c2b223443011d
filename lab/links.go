package lab

import (
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
)

// Links are both directions of every cable of a fabric, to be counted.
type Links struct {
	plan *Plan
	All  []report.Link // of each cable from A, then from B
}

// NewLinks returns links that have counted nothing.
func NewLinks(plan *Plan) *Links {
	l := &Links{plan: plan, All: make([]report.Link, 2*len(plan.Topology.Cables))}
	for i, c := range plan.Topology.Cables {
		impaired := plan.Touched(i)
		l.All[2*i] = report.Link{From: endName(c.A), To: endName(c.B), Impaired: impaired, RateBps: c.Link.RateBps}
		l.All[2*i+1] = report.Link{From: endName(c.B), To: endName(c.A), Impaired: impaired, RateBps: c.Link.RateBps}
	}
	return l
}

func endName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}

// At returns the two directions of a port's cable, from the port and to it.
func (l *Links) At(port int) (out, in *report.Link) {
	p := &l.plan.Ports[port]
	out, in = &l.All[2*p.Cable], &l.All[2*p.Cable+1]
	if !l.plan.Topology.Cables[p.Cable].A.Same(p.Port) {
		out, in = in, out
	}
	return out, in
}

// Lose counts packets lost for a cause.
func Lose(l *report.Link, cause string, n uint64) {
	if n == 0 {
		return
	}
	if l.Lost == nil {
		l.Lost = make(map[string]uint64)
	}
	l.Lost[cause] += n
}

// CountPipe counts what a pipe has done to one direction.
func CountPipe(l *report.Link, c impair.Counters) {
	Lose(l, "loss", c.Lost)
	Lose(l, "burst", c.LostInBurst)
	Lose(l, "rate_queue_full", c.Overflowed)
	Lose(l, "event", c.EventsDropped)
	l.Duplicated += c.Duplicated
	l.Reordered += c.Reordered
	l.Corrupted += c.Corrupted + c.Truncated
	l.Marked += c.Marked
}
