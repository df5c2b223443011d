package simlab

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
)

// observe reads what the network has counted: both directions of every cable, and
// the exact events.
func (f *fabric) observe(o *lab.Observed) {
	links := make([]report.Link, 2*len(f.plan.Topology.Cables)) // from A, from B
	for i, c := range f.plan.Topology.Cables {
		impaired := f.plan.Touched(i)
		links[2*i] = report.Link{From: endName(c.A), To: endName(c.B), Impaired: impaired}
		links[2*i+1] = report.Link{From: endName(c.B), To: endName(c.A), Impaired: impaired}
	}
	for i := range f.places {
		p := &f.plan.Ports[i]
		out, in := &links[2*p.Cable], &links[2*p.Cable+1]
		if !f.plan.Topology.Cables[p.Cable].A.Same(p.Port) {
			out, in = in, out
		}
		f.countLink(f.places[i], out, in)
		up, down := f.places[i].Impairments()
		for _, d := range []struct {
			pipe *impair.Pipe
			link *report.Link
			plan *lab.Impairments
		}{{up, out, &p.Out}, {down, in, &p.In}} {
			if d.pipe == nil {
				continue
			}
			countPipe(d.link, d.pipe.Counters())
			o.CountEvents(d.plan, d.pipe.Fired())
			if err := d.pipe.Err(); err != nil {
				o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", p.Name, err))
			}
		}
	}
	o.Links = links
}

func endName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}

// countLink adds what a port or a trunk counted. Two hosts back to back are two
// ports of one cable: what one sends is what the other is to receive, and is
// counted where it is sent.
func (f *fabric) countLink(at place, out, in *report.Link) {
	switch at := at.(type) {
	case *sim.Port:
		s := at.Stats()
		out.Packets, out.Bytes = s.Out.Packets, s.Out.Bytes
		if len(f.plan.Topology.Switches) > 0 {
			in.Packets, in.Bytes = s.In.Packets, s.In.Bytes
		}
		in.Marked += s.Marked
		countDrops(out, s.DropsOut)
		countDrops(in, s.DropsIn)
	case *sim.Trunk:
		ab, ba := at.Stats()
		for _, d := range []struct {
			link  *report.Link
			stats sim.Stats
		}{{out, ab}, {in, ba}} {
			d.link.Packets, d.link.Bytes = d.stats.Out.Packets, d.stats.Out.Bytes
			d.link.Marked += d.stats.Marked
			countDrops(d.link, d.stats.Drops)
		}
	}
}

func countDrops(l *report.Link, d sim.Drops) {
	lose(l, "no_route", d.NoRoute)
	lose(l, "expired", d.Expired)
	lose(l, "too_big", d.TooBig)
	lose(l, "link_down", d.LinkDown)
	lose(l, "partition", d.Partitioned)
	lose(l, "queue_full", d.QueueFull)
	lose(l, "receive_full", d.ReceiveFull)
}

func countPipe(l *report.Link, c impair.Counters) {
	lose(l, "loss", c.Lost)
	lose(l, "burst", c.LostInBurst)
	lose(l, "rate_queue_full", c.Overflowed)
	lose(l, "event", c.EventsDropped)
	l.Duplicated += c.Duplicated
	l.Reordered += c.Reordered
	l.Corrupted += c.Corrupted + c.Truncated
	l.Marked += c.Marked
}

func lose(l *report.Link, cause string, n uint64) {
	if n == 0 {
		return
	}
	if l.Lost == nil {
		l.Lost = make(map[string]uint64)
	}
	l.Lost[cause] += n
}
