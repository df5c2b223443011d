// Command lockorder can deadlock: two ranks lock the same two windows in opposite order.
//
//	go build -o /tmp/lockorder ./examples/lockorder
//	go run ./cmd/fabrictest explore --out /tmp/lockorder.replay /tmp/lockorder
//	go run ./cmd/fabrictest replay /tmp/lockorder.replay --html /tmp/lockorder.html
//
// With -same, both ranks lock in the same order, and no run hangs.
package main

import (
	"encoding/binary"
	"os"
	"slices"
	"time"

	_ "github.com/fabrictest/fabrictest/lab/mpihost" // the launcher of ranks
	"github.com/fabrictest/fabrictest/mpi"
)

func main() { mpi.Main(count(slices.Contains(os.Args, "-same"))) }

// count returns the program of a rank: it adds one to a counter in the window of each rank, under both locks.
func count(sameOrder bool) func(w *mpi.World) error {
	return func(w *mpi.World) error {
		win, err := w.WinAllocate(8)
		if err != nil {
			return err
		}
		order := []int{0, 1}
		if w.Rank() == 1 && !sameOrder {
			order = []int{1, 0}
			w.Compute(5 * time.Microsecond) // rank 0 has both locks by then, in most runs
		}
		for _, target := range order {
			if err := win.Lock(mpi.Exclusive, target, 0); err != nil {
				return err
			}
		}
		for _, target := range order {
			if err := increment(win, target); err != nil {
				return err
			}
		}
		for _, target := range order {
			if err := win.Unlock(target); err != nil {
				return err
			}
		}
		return win.Free()
	}
}

// increment adds one to the counter of a rank.
func increment(win *mpi.Win, target int) error {
	counter := make([]byte, 8)
	if err := win.Get(counter, target, 0); err != nil {
		return err
	}
	if err := win.Flush(target); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(counter, binary.LittleEndian.Uint64(counter)+1)
	return win.Put(counter, target, 0)
}
