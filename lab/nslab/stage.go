package nslab

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Stage is a fabric that stands, with the cables and switches that pass through
// user space. It must be opened where namespaces can be made: in an enclosure
// (netns.StartUnshared), or by root.
type Stage struct {
	Plan   *lab.Plan
	Fabric *netns.Fabric
	wires  *wires
}

// StageOptions are those of a Stage. By default, cables on which the plan has
// nothing happen are left to the kernel.
type StageOptions struct {
	// Spliced passes every cable of a host through user space, so that Impair works
	// on all of them, and a capture has all of them.
	Spliced bool
	// Netem has the kernel's netem do what the user-space switch would. What it
	// cannot do is an error.
	Netem bool
	// Capture is the file for what passes through user space.
	Capture CaptureOptions
}

// Open builds the fabric of a plan. Packets pass, and nothing happens to them
// before Begin.
func Open(plan *lab.Plan, opts StageOptions) (*Stage, error) {
	splice := spliced(plan)
	switch {
	case opts.Netem:
		if err := netemCan(plan); err != nil {
			return nil, err
		}
		splice = func(topology.Cable) bool { return false }
	case opts.Spliced:
		needed := splice
		splice = func(c topology.Cable) bool { return c.A.NIC != "" || c.B.NIC != "" || needed(c) }
	}
	fabric, err := netns.Build(*plan.Topology, netns.Options{UserCable: splice, Netem: opts.Netem, SegmentGSO: !uswitch.SupportsUDPGSO()})
	if err != nil {
		return nil, err
	}
	w, err := newWires(plan, fabric, opts)
	if err != nil {
		return nil, errors.Join(err, fabric.Close())
	}
	return &Stage{Plan: plan, Fabric: fabric, wires: w}, nil
}

// OpenStage is Open with no options.
func OpenStage(plan *lab.Plan) (*Stage, error) { return Open(plan, StageOptions{}) }

// OpenSpliced is Open with every cable of a host in user space.
func OpenSpliced(plan *lab.Plan) (*Stage, error) { return Open(plan, StageOptions{Spliced: true}) }

// Impair replaces what packets meet by chance, at the ports that a pattern names,
// by what another plan of the same fabric says of them. Faults of the stage's own
// plan do not know of it.
func (st *Stage) Impair(by *lab.Plan, pattern string) error {
	ports, err := st.Plan.Topology.Match(pattern)
	if err != nil {
		return err
	}
	var all []lab.Replace
	for i := range st.Plan.Ports {
		p := &st.Plan.Ports[i]
		if !slices.ContainsFunc(ports, p.Same) {
			continue
		}
		if st.wires.ways[i][lab.Out] == nil {
			return fmt.Errorf("%s: the kernel carries this cable: it can be cut, not impaired", p.Name)
		}
		all = append(all, lab.Replace{Port: i, Way: lab.Out, Specs: by.Ports[i].Out.Specs},
			lab.Replace{Port: i, Way: lab.In, Specs: by.Ports[i].In.Specs})
	}
	if len(all) == 0 {
		return fmt.Errorf("no port matches %q", pattern)
	}
	return st.wires.set(all)
}

// SetLink cuts the cables at the ports that a pattern names, or joins them again.
// It is the kernel that does, also where a cable passes through user space:
// programs may look at the carrier.
func (st *Stage) SetLink(pattern string, up bool) error {
	ports, err := st.Plan.Topology.Match(pattern)
	for _, p := range ports {
		err = errors.Join(err, st.Fabric.SetLink(p.String(), up))
	}
	return err
}

// AddRDMA gives every NIC a device of the kernel's own RDMA in software, of kind
// rxe or siw. They are called after the lab, their host and their NIC, for the
// kernel may show them in all namespaces, and go with the fabric.
func (st *Stage) AddRDMA(kind, lab string) error {
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

// Begin makes now the plan's time 0: what it says of packets holds from then on.
func (st *Stage) Begin(now time.Time) error { return st.wires.begin(now) }

// still ends the user-space switches, so that nothing changes any more. It
// returns what went wrong with them.
func (st *Stage) still() error { return st.wires.close() }

// Close takes the fabric down, and completes the capture.
func (st *Stage) Close() error { return errors.Join(st.wires.close(), st.Fabric.Close()) }
