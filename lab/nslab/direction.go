package nslab

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/ethernet"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// portDirection is one direction of a port on a user-space switch.
type portDirection struct {
	switches  *switchSet
	planPort  int // index in Plan.Ports
	dir       lab.Direction
	sw        *uswitch.Switch
	swPort    int // index of the port in sw
	swDir     uswitch.Direction
	linkSpecs []impair.Spec // rate, latency and queue of the cable
	start     time.Duration // time 0 of the scenario, in the time of the switch
	started   bool
	baseline  uswitch.Counters // counters at start

	impairer *ethernet.Impairer       // nil if packets are not impaired
	stream   *ethernet.StreamImpairer // nil without stream events
	filter   *ethernet.Filter         // nil without partitions
}

// begin installs the impairments and events of the plan, if this direction has any, if a timed
// fault (new impairments or a partition) affects it later, or if handleAll is set. start is the
// switch's time at time 0 of the scenario.
func (d *portDirection) begin(m *lab.Impairments, start time.Duration) error {
	plan, cfg := d.switches.plan, m.Config
	d.start, d.started, d.baseline = start, true, d.counters()
	cfg.Specs = d.withLinkSpecs(cfg.Specs)
	changesHere := func(s lab.Step) bool {
		return slices.ContainsFunc(s.Set, func(c lab.SpecChange) bool { return c.Port == d.planPort && c.Direction == d.dir })
	}
	// Partitions filter packets at the receiving host.
	filtered := d.dir == lab.In && plan.Ports[d.planPort].Host >= 0 &&
		slices.ContainsFunc(plan.Steps, func(s lab.Step) bool { return s.Do == scenarios.Partition })
	if d.switches.handleAll || filtered || len(cfg.Specs) > 0 || len(cfg.Events) > 0 || len(m.StreamEvents) > 0 || slices.ContainsFunc(plan.Steps, changesHere) {
		return d.install(cfg, m.StreamEvents, filtered)
	}
	return nil
}

// install sets the handler of the direction: capture, partition filter (if filtered), stream
// events and impairments, in this order.
func (d *portDirection) install(cfg impair.Config, streams []lab.StreamEvent, filtered bool) (err error) {
	d.impairer, err = ethernet.NewImpairer(cfg, ethernet.Options{
		Dissector: d.switches.plan.Provider.Dissector, Source: d.switches.plan.RandSources(d.planPort, d.dir), Start: d.start,
	})
	if err != nil {
		return err
	}
	var handler uswitch.FrameHandler = d.impairer
	if len(streams) > 0 {
		d.stream = ethernet.NewStreamImpairer(streams, handler)
		handler = d.stream
	}
	if filtered {
		d.filter = &ethernet.Filter{Next: handler, Blocked: d.switches.blocked}
		handler = d.filter
	}
	if handler, err = d.switches.capture.tap(d.name(), handler); err != nil {
		return err
	}
	return d.sw.SetHandler(d.swPort, d.swDir, handler)
}

// name returns the name of the direction in a capture: "host0/rdma0 out".
func (d *portDirection) name() string {
	dir := "out"
	if d.dir == lab.In {
		dir = "in"
	}
	return d.switches.plan.Ports[d.planPort].Name + " " + dir
}

// withLinkSpecs appends the specs of the cable. They come last, so that each spec of the scenario
// has the same random source with and without them.
func (d *portDirection) withLinkSpecs(specs []impair.Spec) []impair.Spec {
	return append(slices.Clip(specs), d.linkSpecs...)
}

// setSpecs replaces the random impairments. If begin installed no impairer, it installs one,
// without stream events and partition filter: the direction has none.
func (d *portDirection) setSpecs(specs []impair.Spec) (err error) {
	switch {
	case !d.started:
		return fmt.Errorf("%s: impairments cannot be set before Begin", d.name())
	case d.impairer == nil:
		var noStreamEvents []lab.StreamEvent
		const filtered = false
		return d.install(impair.Config{Specs: d.withLinkSpecs(specs)}, noStreamEvents, filtered)
	}
	d.sw.WhileQuiesced(func() { err = d.impairer.Pipe.SetSpecs(d.withLinkSpecs(specs)) })
	return err
}

// linkSpecs returns the impairments of a link, none if it is ideal: rate, latency and, if the link
// has a rate and finiteQueue is set, the queue with its ECN marking.
func linkSpecs(l topology.Link, finiteQueue bool) []impair.Spec {
	if !shaped(l) {
		return nil
	}
	s := impair.Spec{Delay: l.Latency, RateBps: l.RateBps}
	if finiteQueue && l.RateBps != 0 {
		s.QueueBytes = l.QueueBytes
		s.QueueMarks = impair.QueueMarks{MinBytes: l.ECN.MinBytes, MaxBytes: l.ECN.MaxBytes, MaxPPM: l.ECN.MaxPPM}
	}
	return []impair.Spec{s}
}

// partitionGroups has the group of each address. Addresses in no group form group 0.
type partitionGroups map[netip.Addr]int

// partition implements network: the switches drop packets between groups of addresses.
func (w *switchSet) partition(step *lab.Step) {
	if groups := groupsOf(w.plan, step); groups != nil {
		w.partitioned.Store(&groups)
	} else {
		w.partitioned.Store(nil)
	}
}

// groupsOf returns the groups of a step that starts a partition, and nil for one that ends it. Only
// addresses of one group reach each other; those that the step does not list form another group.
func groupsOf(plan *lab.Plan, step *lab.Step) partitionGroups {
	if step.Undo {
		return nil
	}
	groups := make(partitionGroups)
	for i, g := range step.Groups {
		for _, port := range g {
			nic, _ := plan.Topology.NIC(plan.Ports[port].Port)
			for _, a := range nic.Addrs {
				groups[a.Addr()] = i + 1 // 0, the zero value of a map, is the group of the addresses not listed
			}
		}
	}
	return groups
}

// blocked reports whether the partition separates two addresses.
func (w *switchSet) blocked(src, dst netip.Addr) bool {
	groups := w.partitioned.Load()
	return groups != nil && (*groups)[src] != (*groups)[dst]
}
