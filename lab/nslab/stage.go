package nslab

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
)

// Stage is a fabric that stands, with the cables and switches that pass through
// user space. It must be opened where namespaces can be made: in an enclosure
// (netns.StartEnclosed), or by root.
type Stage struct {
	Plan   *lab.Plan
	Fabric *netns.Fabric
	wires  *wires
}

// OpenStage builds the fabric of a plan. Packets pass, and nothing happens to
// them before Begin.
func OpenStage(plan *lab.Plan) (*Stage, error) {
	fabric, err := netns.Build(*plan.Topology, netns.Options{Splice: spliced(plan)})
	if err != nil {
		return nil, err
	}
	w, err := newWires(plan, fabric)
	if err != nil {
		return nil, errors.Join(err, fabric.Close())
	}
	return &Stage{Plan: plan, Fabric: fabric, wires: w}, nil
}

// Begin makes now the plan's time 0: what it says of packets holds from then on.
func (st *Stage) Begin(now time.Time) error { return st.wires.begin(now) }

// still ends the user-space switches, so that nothing changes any more. It
// returns what went wrong with them.
func (st *Stage) still() error { return st.wires.close() }

// Close takes the fabric down.
func (st *Stage) Close() error { return errors.Join(st.wires.close(), st.Fabric.Close()) }
