package nslab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/report"
)

// Testbed is a fabric that is up, with its user-space switches. Unless the scenario has cables in
// shared memory, Open must be called in a process that may create namespaces: one started by
// netns.StartUnshared, or root.
type Testbed struct {
	Plan   *lab.Plan
	Fabric *netns.Fabric // nil with cables in shared memory
	network
	cables *cableSet // nil with namespaces
}

// network has the links of a testbed: switchSet with namespaces, cableSet in shared memory.
type network interface {
	// begin sets time 0 of the scenario and installs its impairments.
	begin(start time.Time) error
	// setSpecs replaces random impairments of ports.
	setSpecs(all []lab.SpecChange) error
	// setLink sets the link of a port of the plan up or down, and setLinks those of the ports that
	// match a pattern, so that programs see the carrier change if the network has one.
	setLink(port int, up bool) error
	setLinks(pattern string, up bool) error
	// partition starts the partition of a step, or ends it if the step is an undo.
	partition(step *lab.Step)
	// readCounters reads the counters and events of every link, after close.
	readCounters(o *lab.Observation) error
	close() error
}

// TestbedOptions are options of a Testbed. By default, the kernel carries the
// cables that the plan does not impair.
type TestbedOptions struct {
	// UserSpace carries every cable of a host through user space, for Impair and captures.
	UserSpace bool
	// Netem uses the kernel's netem instead of the user-space switches. An
	// impairment that netem lacks is an error.
	Netem bool
	// Capture is for packets on cables in user space.
	Capture CaptureOptions
}

// Open builds the fabric of a plan: cables in shared memory if its scenario demands them, else
// network namespaces. Packets are not impaired before Begin. In namespaces, cables that the plan
// impairs, or takes down, pass through a user-space switch; with opts.UserSpace also every cable of
// a NIC, and with opts.Netem no cable.
func Open(plan *lab.Plan, opts TestbedOptions) (*Testbed, error) {
	if cabled(plan.Scenario) {
		c, err := openCables(plan, opts)
		if err != nil {
			return nil, err
		}
		return &Testbed{Plan: plan, network: c, cables: c}, nil
	}
	userCable := needsUserSpace(plan) // reports whether a cable passes through user space
	switch {
	case opts.Netem:
		if err := checkNetem(plan); err != nil {
			return nil, err
		}
		userCable = func(topology.Cable) bool { return false }
	case opts.UserSpace:
		needed := userCable
		userCable = func(c topology.Cable) bool { return c.A.NIC != "" || c.B.NIC != "" || needed(c) }
	}
	fabric, err := netns.Build(*plan.Topology, netns.Options{UserCable: userCable, Netem: opts.Netem, SegmentGSO: !uswitch.SupportsUDPGSO()})
	if err != nil {
		return nil, err
	}
	w, err := newSwitchSet(plan, fabric, opts)
	if err != nil {
		return nil, errors.Join(err, fabric.Close())
	}
	return &Testbed{Plan: plan, Fabric: fabric, network: w}, nil
}

// Start returns the function that starts a process in a host; nil if hosts have no namespaces.
func (st *Testbed) Start(host string) func(*exec.Cmd) error {
	if st.Fabric == nil {
		return nil
	}
	return st.Fabric.Host(host).NS.Start
}

// CableFiles returns the files of the cables in shared memory, by rail, which the processes of all
// hosts inherit; none with namespaces.
func (st *Testbed) CableFiles() []*os.File {
	if st.cables == nil {
		return nil
	}
	return st.cables.files
}

// Impair replaces the random impairments of the ports that match a pattern by those of another plan
// with the same topology. The end of a fault of the testbed's own plan may overwrite them.
func (st *Testbed) Impair(by *lab.Plan, pattern string) error {
	ports, err := st.Plan.Topology.Match(pattern)
	if err != nil {
		return err
	}
	var all []lab.SpecChange
	for i := range st.Plan.Ports {
		p := &st.Plan.Ports[i]
		if !slices.ContainsFunc(ports, p.Same) {
			continue
		}
		all = append(all, lab.SpecChange{Port: i, Direction: lab.Out, Specs: by.Ports[i].Out.Specs},
			lab.SpecChange{Port: i, Direction: lab.In, Specs: by.Ports[i].In.Specs})
	}
	if len(all) == 0 {
		return fmt.Errorf("no port matches %q", pattern)
	}
	return st.setSpecs(all)
}

// SetLink sets the links of the ports that match a pattern up or down. With namespaces, programs see
// the carrier change.
func (st *Testbed) SetLink(pattern string, up bool) error { return st.setLinks(pattern, up) }

// AddRDMA adds a kernel RDMA device of kind rxe or siw to every NIC. Device names contain the lab's
// name, because they may be visible in all namespaces. The devices are removed with the fabric.
func (st *Testbed) AddRDMA(kind, lab string) error {
	for i := range st.Plan.Ports {
		p := &st.Plan.Ports[i]
		if p.Host < 0 {
			continue // between switches
		}
		name := fmt.Sprintf("%s-%s-%s", lab, p.Node, p.NIC)
		if err := netns.RDMALinkAdd(st.Fabric.Host(p.Node).NS, kind, name, p.NIC); err != nil {
			return err
		}
	}
	return nil
}

// Begin sets time 0 of the plan: impairments and events apply from then on.
func (st *Testbed) Begin(now time.Time) error { return st.begin(now) }

// Close removes the fabric and completes the capture.
func (st *Testbed) Close() error {
	err := st.close()
	if st.Fabric != nil {
		err = errors.Join(err, st.Fabric.Close())
	}
	return err
}

// readCounters implements network: it reads the counters of every cable's two directions, from the
// kernel if that carries the cable, else from the user-space switch.
func (w *switchSet) readCounters(o *lab.Observation) error {
	links := lab.NewLinks(w.plan)
	for i := range w.plan.Ports {
		out, in := links.At(i)
		if w.directions[i][lab.Out] == nil {
			if err := readKernelCounters(w.fabric, w.plan.Ports[i].Port, out, in); err != nil {
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
func (d *portDirection) counters() uswitch.Counters {
	stats := d.sw.Stats().Ports[d.swPort]
	if d.swDir == uswitch.Out {
		return stats.Out
	}
	return stats.In
}

// etherBytes is the length of the Ethernet header.
const etherBytes = 14

// readCounters adds the counters of one direction in user space since begin to a link, and the
// events that occurred to the observation. Bytes do not include Ethernet headers.
func (d *portDirection) readCounters(o *lab.Observation, name string, plan *lab.Impairments, l *report.Link) {
	c, before := d.counters(), &d.baseline
	overrun := c.Drops.Overrun - before.Drops.Overrun
	// A cable between two hosts has two ports, but its packets are counted once, at the sender, where
	// they enter the switch (In). Packets of other cables may be counted only where they leave it.
	if d.swDir == uswitch.In || l.Packets == 0 {
		frames := c.Offered - before.Offered
		l.Packets = frames + overrun // Offered does not include the frames that the socket dropped
		l.Bytes = c.OfferedBytes - before.OfferedBytes - frames*etherBytes
	}
	lab.AddLost(l, "overrun", overrun)
	lab.AddLost(l, "malformed", c.Drops.Malformed-before.Drops.Malformed)
	lab.AddLost(l, "link_down", c.Drops.Down-before.Drops.Down)
	lab.AddLost(l, "held_full", c.Drops.QueueFull-before.Drops.QueueFull)
	lab.AddLost(l, "too_big", c.Drops.TooBig-before.Drops.TooBig)
	lab.AddLost(l, "refused", c.Drops.SendErrors-before.Drops.SendErrors)
	if d.filter != nil {
		lab.AddLost(l, "partition", d.filter.Dropped)
	}
	if d.impairer == nil {
		return
	}
	pipe := d.impairer.Pipe
	lab.AddPipeCounters(l, pipe.Counters())
	lab.AddLost(l, "held_full", d.impairer.HeldOverflow) // in addition to those of the switch
	o.CountEvents(plan, pipe.Fired())
	if d.stream != nil {
		o.CountStreamEvents(d.stream.Matcher)
		lab.AddLost(l, "event", d.stream.Drops)
	}
	if err := pipe.Err(); err != nil {
		o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", name, err))
	}
}

// readKernelCounters sets the counters of both directions of a cable that the kernel carries.
// The kernel counts a GSO packet as one packet.
func readKernelCounters(fabric *netns.Fabric, port topology.Port, out, in *report.Link) error {
	s, err := fabric.Stats(port.String())
	if err != nil {
		return err
	}
	out.KernelCounted, in.KernelCounted = true, true
	out.Packets, out.Bytes = s.TxPackets, s.TxBytes-s.TxPackets*etherBytes
	if in.Packets == 0 { // else they were set from the transmit counters of the port at the other end
		in.Packets, in.Bytes = s.RxPackets, s.RxBytes-s.RxPackets*etherBytes
	}
	lab.AddLost(out, "kernel", s.TxDropped+s.QueueDropped)
	lab.AddLost(in, "kernel", s.RxDropped)
	return nil
}
