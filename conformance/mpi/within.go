package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// RunWithin runs a case on the first ranks of a world that may have more, in a communicator
// of its own. All ranks of the world call it, and it returns when all have finished. The
// case must leave no message behind.
func RunWithin(c *Case, w World) error {
	color := 0
	if w.Rank() >= c.Setup.Ranks {
		color = mpi.Undefined
	}
	some, err := w.Split(color, 0)
	if err != nil {
		return fmt.Errorf("%s: making a communicator for it: %w", c.ID, err)
	}
	if some != nil {
		if err := RunOn(c, &part{some, w}); err != nil {
			return err
		}
		if st, found, err := some.Iprobe(mpi.AnySource, mpi.AnyTag); err != nil || found {
			return fmt.Errorf("%s: left behind by it: %+v, %w", c.ID, st, err)
		}
		if err := some.Free(); err != nil {
			return fmt.Errorf("%s: freeing its communicator: %w", c.ID, err)
		}
	}
	if err := w.Barrier(); err != nil {
		return fmt.Errorf("%s: the barrier behind it: %w", c.ID, err)
	}
	return nil
}

// InTurn runs the selected cases one after the other in a world of at least seven ranks, two
// on each host.
func InTurn(w World, selected func(*Case) bool) error {
	for _, c := range Cases() {
		if !selected(&c) {
			continue
		}
		if err := RunWithin(&c, w); err != nil {
			return err
		}
	}
	return nil
}

// part is a World whose ranks are those of a communicator.
type part struct {
	Comm
	Runtime
}
