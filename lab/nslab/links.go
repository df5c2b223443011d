package nslab

import (
	"fmt"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/report"
)

// readCounters reads the counters and events of every link. The switches must have
// stopped.
func (w *switchSet) readCounters(fabric *netns.Fabric, o *lab.Observation) error {
	links := lab.NewLinks(w.plan)
	for i := range w.plan.Ports {
		out, in := links.At(i)
		if w.directions[i][lab.Out] == nil {
			if err := readKernelCounters(fabric, w.plan.Ports[i].Port, out, in); err != nil {
				return err
			}
			continue
		}
		p := &w.plan.Ports[i]
		w.directions[i][lab.Out].readCounters(o, p.Name, &p.Out, out)
		w.directions[i][lab.In].readCounters(o, p.Name, &p.In, in)
	}
	o.Links = links.All
	return nil
}

// counters returns the switch counters of this direction.
func (y *portDirection) counters() uswitch.Counters {
	stats := y.sw.Stats().Ports[y.swPort]
	if y.swDir == uswitch.Out {
		return stats.Out
	}
	return stats.In
}

// etherBytes is the length of the Ethernet header.
const etherBytes = 14

// readCounters reads the counters of one direction in user space since begin.
func (y *portDirection) readCounters(o *lab.Observation, name string, plan *lab.Impairments, l *report.Link) {
	c := y.counters()
	// A cable between two hosts has two ports. Its packets are counted once, at the
	// sender.
	if y.swDir == uswitch.In || l.Packets == 0 {
		frames := c.Offered - y.baseline.Offered
		l.Packets, l.Bytes = frames+c.Drops.Overrun, c.OfferedBytes-y.baseline.OfferedBytes-frames*etherBytes
	}
	lab.AddLost(l, "overrun", c.Drops.Overrun)
	lab.AddLost(l, "malformed", c.Drops.Malformed)
	lab.AddLost(l, "link_down", c.Drops.Down)
	lab.AddLost(l, "held_full", c.Drops.HeldFull)
	lab.AddLost(l, "too_big", c.Drops.TooBig)
	lab.AddLost(l, "refused", c.Drops.SendErrors)
	if y.filter != nil {
		lab.AddLost(l, "partition", y.filter.Blocked())
	}
	if y.impairer == nil {
		return
	}
	pipe := y.impairer.Pipe()
	lab.AddPipeCounters(l, pipe.Counters())
	lab.AddLost(l, "held_full", y.impairer.HeldOverflow())
	o.CountEvents(plan, pipe.Fired())
	if y.stream != nil {
		o.CountStreamEvents(y.stream.Matcher())
		lab.AddLost(l, "event", y.stream.Drops())
	}
	if err := pipe.Err(); err != nil {
		o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", name, err))
	}
}

// readKernelCounters reads the counters of a cable that the kernel carries. They
// count a GSO packet as one packet.
func readKernelCounters(fabric *netns.Fabric, port topology.Port, out, in *report.Link) error {
	s, err := fabric.Stats(port.String())
	if err != nil {
		return err
	}
	out.Coarse, in.Coarse = true, true
	out.Packets, out.Bytes = s.TxPackets, s.TxBytes-s.TxPackets*etherBytes
	if in.Packets == 0 {
		in.Packets, in.Bytes = s.RxPackets, s.RxBytes-s.RxPackets*etherBytes
	}
	lab.AddLost(out, "kernel", s.TxDropped+s.QueueDropped)
	lab.AddLost(in, "kernel", s.RxDropped)
	return nil
}
