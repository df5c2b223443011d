package nslab

import (
	"fmt"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/report"
)

// observe reads what every link has counted, and which exact events happened.
// The switches have ended by then.
func (w *wires) observe(fabric *netns.Fabric, o *lab.Observed) error {
	links := lab.NewLinks(w.plan)
	for i := range w.plan.Ports {
		out, in := links.At(i)
		if w.ways[i][lab.Out] == nil {
			if err := kernelLink(fabric, w.plan.Ports[i].Port, out, in); err != nil {
				return err
			}
			continue
		}
		p := &w.plan.Ports[i]
		w.ways[i][lab.Out].observe(o, p.Name, &p.Out, out)
		w.ways[i][lab.In].observe(o, p.Name, &p.In, in)
	}
	o.Links = links.All
	return nil
}

// counters are those of the switch for this direction.
func (y *way) counters() uswitch.Counters {
	stats := y.at.Stats().Ports[y.port]
	if y.dir == uswitch.Out {
		return stats.Out
	}
	return stats.In
}

// etherBytes are those of a frame that are not in its packet.
const etherBytes = 14

// observe reads what one direction in user space has counted. What the kernels
// had to say to each other before the scenario began is no part of it.
func (y *way) observe(o *lab.Observed, name string, plan *lab.Impairments, l *report.Link) {
	c := y.counters()
	// Two hosts back to back are the two ports of one cable: what one has sent is
	// what came out for the other, and is counted where it was sent.
	if y.dir == uswitch.In || l.Packets == 0 {
		frames := c.Offered - y.base.Offered
		l.Packets, l.Bytes = frames+c.Drops.Overrun, c.OfferedBytes-y.base.OfferedBytes-frames*etherBytes
	}
	lab.Lose(l, "overrun", c.Drops.Overrun)
	lab.Lose(l, "malformed", c.Drops.Malformed)
	lab.Lose(l, "link_down", c.Drops.Down)
	lab.Lose(l, "held_full", c.Drops.HeldFull)
	lab.Lose(l, "too_big", c.Drops.TooBig)
	lab.Lose(l, "refused", c.Drops.SendErrors)
	if y.filter != nil {
		lab.Lose(l, "partition", y.filter.Blocked())
	}
	if y.path == nil {
		return
	}
	pipe := y.path.Pipe()
	lab.CountPipe(l, pipe.Counters())
	lab.Lose(l, "held_full", y.path.HeldOverflow())
	o.CountEvents(plan, pipe.Fired())
	if y.stream != nil {
		o.CountStreamEvents(y.stream.watch)
		lab.Lose(l, "event", y.stream.drops)
	}
	if err := pipe.Err(); err != nil {
		o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", name, err))
	}
}

// kernelLink reads what the kernel counted where it carries the cable. It counts
// a super-packet as one, and its headers once.
func kernelLink(fabric *netns.Fabric, port topology.Port, out, in *report.Link) error {
	s, err := fabric.Stats(port.String())
	if err != nil {
		return err
	}
	out.Coarse, in.Coarse = true, true
	out.Packets, out.Bytes = s.TxPackets, s.TxBytes-s.TxPackets*etherBytes
	if in.Packets == 0 {
		in.Packets, in.Bytes = s.RxPackets, s.RxBytes-s.RxPackets*etherBytes
	}
	lab.Lose(out, "kernel", s.TxDropped+s.QueueDropped)
	lab.Lose(in, "kernel", s.RxDropped)
	return nil
}
