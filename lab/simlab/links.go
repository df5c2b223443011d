package simlab

import (
	"cmp"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// observe reads what the network has counted: both directions of every cable, and
// the exact events.
func (f *fabric) observe(o *lab.Observed) {
	links := lab.NewLinks(f.plan)
	for i := range f.places {
		p := &f.plan.Ports[i]
		out, in := links.At(i)
		f.count(f.places[i], out, in)
		up, down := f.places[i].Impairments()
		if s := f.streams[i]; s != nil {
			up, down = s.pipes[lab.Out], s.pipes[lab.In]
			o.CountStreamEvents(s.watch[lab.Out])
			o.CountStreamEvents(s.watch[lab.In])
			f.countStreams(s, out, in)
		}
		for _, d := range []struct {
			pipe *impair.Pipe
			link *report.Link
			plan *lab.Impairments
		}{{up, out, &p.Out}, {down, in, &p.In}} {
			if d.pipe == nil {
				continue
			}
			lab.CountPipe(d.link, d.pipe.Counters())
			if f.streams[i] == nil {
				o.CountEvents(d.plan, d.pipe.Fired())
			}
			if err := d.pipe.Err(); err != nil {
				o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", p.Name, err))
			}
		}
	}
	for i := range links.All {
		links.All[i].RateBps = cmp.Or(links.All[i].RateBps, defaultRate)
	}
	o.Links = links.All
}

// count adds what a port or a trunk has counted. Two hosts back to back are two
// ports of one cable: what one sends is what the other is to receive, and its
// packets are counted where they are sent.
func (f *fabric) count(at place, out, in *report.Link) {
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

// countStreams adds the segments of a port's streams, each cable's once.
func (f *fabric) countStreams(s *streamPort, out, in *report.Link) {
	lab.Lose(out, "event", s.drops[lab.Out])
	lab.Lose(in, "event", s.drops[lab.In])
	out.Packets += s.seen[lab.Out].packets
	out.Bytes += s.seen[lab.Out].bytes
	if len(f.plan.Topology.Switches) > 0 {
		in.Packets += s.seen[lab.In].packets
		in.Bytes += s.seen[lab.In].bytes
	}
}

func countDrops(l *report.Link, d sim.Drops) {
	lab.Lose(l, "no_route", d.NoRoute)
	lab.Lose(l, "expired", d.Expired)
	lab.Lose(l, "too_big", d.TooBig)
	lab.Lose(l, "link_down", d.LinkDown)
	lab.Lose(l, "partition", d.Partitioned)
	lab.Lose(l, "queue_full", d.QueueFull)
	lab.Lose(l, "receive_full", d.ReceiveFull)
}
