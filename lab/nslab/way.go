package nslab

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/impair/ethernet"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// way is one direction of a port, in user space.
type way struct {
	wires *wires
	of    int // the port, in the plan
	way   lab.Way
	at    *uswitch.Switch
	port  int // the same, in the switch
	dir   uswitch.Direction
	shape []impair.Spec    // the cable's own, behind what the scenario says
	start time.Duration    // of the scenario, as the switch counts time
	begun bool             // from then on, something may happen
	base  uswitch.Counters // what had passed before

	path   *ethernet.Impairer // nil where nothing happens
	stream *streamWay         // nil where nothing happens to streams
	filter *ethernet.Filter   // nil where nobody is kept apart
}

// begin puts in place what packets meet.
func (y *way) begin(m *lab.Impairments, start time.Duration) error {
	plan, cfg := y.wires.plan, m.Config
	y.start, y.begun, y.base = start, true, y.counters()
	cfg.Specs = y.specs(cfg.Specs)
	later := func(s lab.Step) bool {
		return slices.ContainsFunc(s.Set, func(r lab.Replace) bool { return r.Port == y.of && r.Way == y.way })
	}
	// Packets are kept apart where they arrive, at hosts.
	parted := y.way == lab.In && plan.Ports[y.of].Host >= 0 &&
		slices.ContainsFunc(plan.Steps, func(s lab.Step) bool { return s.Do == scenarios.Partition })
	if y.wires.impairable || parted || len(cfg.Specs) > 0 || len(cfg.Events) > 0 || len(m.Streams) > 0 || slices.ContainsFunc(plan.Steps, later) {
		return y.install(cfg, m.Streams, parted)
	}
	return nil
}

// install makes packets meet something.
func (y *way) install(cfg impair.Config, streams []lab.StreamEvent, parted bool) (err error) {
	y.path, err = ethernet.NewImpairer(cfg, ethernet.Options{
		Dissector: y.wires.plan.Provider.Dissector, Source: y.wires.plan.Streams(y.of, y.way), Start: y.start,
	})
	if err != nil {
		return err
	}
	var path uswitch.FrameHandler = y.path
	if len(streams) > 0 {
		y.stream = newStreamWay(streams, path)
		path = y.stream
	}
	if parted {
		y.filter = ethernet.NewFilter(path, y.wires.blocked)
		path = y.filter
	}
	if path, err = y.wires.capture.tap(y.name(), path); err != nil {
		return err
	}
	return y.at.SetHandler(y.port, y.dir, path)
}

// name is that of the direction in a capture: host0/rdma0 out.
func (y *way) name() string {
	dir := "out"
	if y.way == lab.In {
		dir = "in"
	}
	return y.wires.plan.Ports[y.of].Name + " " + dir
}

// specs are the scenario's, and the cable's own behind them, where they do not
// change how chance is numbered.
func (y *way) specs(given []impair.Spec) []impair.Spec {
	return append(slices.Clip(given), y.shape...)
}

// set replaces what packets meet by chance. Where nothing happened so far there
// is no path yet.
func (y *way) set(specs []impair.Spec) (err error) {
	switch {
	case !y.begun:
		return fmt.Errorf("%s: nothing can be impaired before the stage has begun", y.name())
	case y.path == nil:
		return y.install(impair.Config{Specs: y.specs(specs)}, nil, false)
	}
	y.at.WhileQuiesced(func() { err = y.path.Pipe().SetSpecs(y.specs(specs)) })
	return err
}

// shapeOut is a cable's own part for what leaves a port. A host waits for its
// cable instead of losing what does not fit; a switch has a queue.
func shapeOut(p *lab.Port, c topology.Cable) []impair.Spec {
	if !shaped(c.Link) {
		return nil
	}
	s := impair.Spec{Delay: c.Link.Latency, RateBps: c.Link.RateBps}
	if p.Host < 0 {
		queue(&s, c.Link)
	}
	return []impair.Spec{s}
}

// shapeIn is the same for what comes to a port from a switch. From another host
// it has passed the cable already.
func shapeIn(plan *lab.Plan, p *lab.Port, c topology.Cable) []impair.Spec {
	if _, back2back := plan.Topology.Host(c.Other(p.Port).Node); back2back || !shaped(c.Link) {
		return nil
	}
	s := impair.Spec{Delay: c.Link.Latency, RateBps: c.Link.RateBps}
	queue(&s, c.Link)
	return []impair.Spec{s}
}

func queue(s *impair.Spec, l topology.Link) {
	if l.RateBps != 0 {
		s.QueueBytes = l.QueueBytes
		s.QueueMarks = impair.QueueMarks{MinBytes: l.ECN.MinBytes, MaxBytes: l.ECN.MaxBytes, MaxPPM: l.ECN.MaxPPM}
	}
}

// parting is a partition: which group each address is in. Those in none form one
// more group together.
type parting map[netip.Addr]int

// partition keeps groups apart, or lets them meet again.
func (w *wires) partition(step *lab.Step) error {
	if step.Undo {
		w.apart.Store(nil)
		return nil
	}
	groups := make(parting)
	for i, g := range step.Groups {
		for _, k := range g {
			nic, _ := w.plan.Topology.NIC(w.plan.Ports[k].Port)
			for _, a := range nic.Addrs {
				groups[a.Addr()] = i + 1
			}
		}
	}
	w.apart.Store(&groups)
	return nil
}

// blocked reports whether packets from src must not reach dst now.
func (w *wires) blocked(src, dst netip.Addr) bool {
	groups := w.apart.Load()
	return groups != nil && (*groups)[src] != (*groups)[dst]
}
