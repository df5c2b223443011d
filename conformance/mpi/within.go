package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// InTurn runs the selected cases in turn in a world with two ranks on each host, and at least as
// many ranks as the largest case has: seven. Each case runs on the first ranks, in its own
// communicator, and must leave no message behind.
func InTurn(w World, selected func(*Case) bool) error {
	for _, c := range Cases() {
		if !selected(&c) {
			continue
		}
		if err := runWithin(&c, w); err != nil {
			return fmt.Errorf("%s: %w", c.ID, err)
		}
	}
	return nil
}

// runWithin runs a case on the first ranks of a world. All ranks of the world call it, and it
// returns when all have finished.
func runWithin(c *Case, w World) error {
	color := 0
	if w.Rank() >= c.Setup.Ranks {
		color = mpi.Undefined
	}
	const key = 0 // keeps the order of the ranks
	firstRanks, err := w.Split(color, key)
	if err != nil {
		return err
	}
	if firstRanks != nil {
		if err := RunOn(c, &commWorld{firstRanks, w}); err != nil {
			return err
		}
		st, found, err := firstRanks.Iprobe(mpi.AnySource, mpi.AnyTag)
		if found {
			err = fmt.Errorf("the case left a message: %+v", st)
		}
		if err != nil {
			return err
		}
		if err := firstRanks.Free(); err != nil {
			return err
		}
	}
	return w.Barrier()
}

// commWorld is a World whose ranks are those of a communicator.
type commWorld struct {
	Comm
	Runtime
}
