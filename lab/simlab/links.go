package simlab

import (
	"cmp"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// readCounters reads the counters of both directions of every cable, and the
// events.
func (f *fabric) readCounters(o *lab.Observation) {
	links := lab.NewLinks(f.plan)
	for i := range f.simPorts {
		p := &f.plan.Ports[i]
		out, in := links.At(i)
		f.addPortCounters(f.simPorts[i], out, in)
		up, down := f.simPorts[i].Impairments()
		if s := f.streamPorts[i]; s != nil {
			up, down = s.pipes[lab.Out], s.pipes[lab.In]
			o.CountStreamEvents(s.matchers[lab.Out])
			o.CountStreamEvents(s.matchers[lab.In])
			f.addStreamCounters(s, out, in)
		}
		for _, d := range []struct {
			pipe *impair.Pipe
			link *report.Link
			plan *lab.Impairments
		}{{up, out, &p.Out}, {down, in, &p.In}} {
			if d.pipe == nil {
				continue
			}
			lab.AddPipeCounters(d.link, d.pipe.Counters())
			if f.streamPorts[i] == nil {
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

// addPortCounters adds the counters of a port or trunk. The packets of a cable
// between two hosts are counted once, at the sender.
func (f *fabric) addPortCounters(at simPort, out, in *report.Link) {
	switch at := at.(type) {
	case *sim.Port:
		s := at.Stats()
		out.Packets, out.Bytes = s.Out.Packets, s.Out.Bytes
		if len(f.plan.Topology.Switches) > 0 {
			in.Packets, in.Bytes = s.In.Packets, s.In.Bytes
		}
		in.Marked += s.Marked
		addDrops(out, s.DropsOut)
		addDrops(in, s.DropsIn)
	case *sim.Trunk:
		ab, ba := at.Stats()
		for _, d := range []struct {
			link  *report.Link
			stats sim.Stats
		}{{out, ab}, {in, ba}} {
			d.link.Packets, d.link.Bytes = d.stats.Out.Packets, d.stats.Out.Bytes
			d.link.Marked += d.stats.Marked
			addDrops(d.link, d.stats.Drops)
		}
	}
}

// addStreamCounters adds the segments of a port's streams. A cable between two
// hosts counts them once.
func (f *fabric) addStreamCounters(s *streamPort, out, in *report.Link) {
	lab.AddLost(out, "event", s.drops[lab.Out])
	lab.AddLost(in, "event", s.drops[lab.In])
	out.Packets += s.traffic[lab.Out].packets
	out.Bytes += s.traffic[lab.Out].bytes
	if len(f.plan.Topology.Switches) > 0 {
		in.Packets += s.traffic[lab.In].packets
		in.Bytes += s.traffic[lab.In].bytes
	}
}

func addDrops(l *report.Link, d sim.Drops) {
	lab.AddLost(l, "no_route", d.NoRoute)
	lab.AddLost(l, "expired", d.Expired)
	lab.AddLost(l, "too_big", d.TooBig)
	lab.AddLost(l, "link_down", d.LinkDown)
	lab.AddLost(l, "partition", d.Partitioned)
	lab.AddLost(l, "queue_full", d.QueueFull)
	lab.AddLost(l, "receive_full", d.ReceiveFull)
}
