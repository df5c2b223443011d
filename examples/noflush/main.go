// Command noflush has an error that only NICs and networks show that reorder: rank 0 writes a value and then a
// flag to the window of rank 1, which polls the flag and reads the value. Nothing orders the two writes.
//
//	go build -o /tmp/noflush ./examples/noflush
//	go run ./cmd/fabrictest explore --robust --progress background --runs 100 --out /tmp/noflush.replay /tmp/noflush
//	go run ./cmd/fabrictest replay /tmp/noflush.replay --html /tmp/noflush.html
//
// With -flush, rank 0 flushes the value before it writes the flag, and the program is robust.
package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	_ "github.com/fabrictest/fabrictest/lab/mpihost" // the launcher of ranks
	"github.com/fabrictest/fabrictest/mpi"
)

func main() { mpi.Main(pass(slices.Contains(os.Args, "-flush"))) }

// Offsets in the window of rank 1.
const value, flag = 0, 64

// pass returns the program of a rank.
func pass(flushes bool) func(w *mpi.World) error {
	return func(w *mpi.World) error {
		win, err := w.WinAllocate(128)
		if err != nil {
			return err
		}
		if err := win.LockAll(0); err != nil {
			return err
		}
		if w.Rank() == 0 {
			err = write(win, flushes)
		} else {
			err = read(w, win)
		}
		if err != nil {
			return err
		}
		if err := win.UnlockAll(); err != nil {
			return err
		}
		return win.Free()
	}
}

// write writes the value and the flag.
func write(win *mpi.Win, flushes bool) error {
	if err := win.Put([]byte{42}, 1, value); err != nil {
		return err
	}
	if flushes {
		if err := win.Flush(1); err != nil {
			return err
		}
	}
	return win.Put([]byte{1}, 1, flag)
}

// read polls the flag, and checks the value.
func read(w *mpi.World, win *mpi.Win) error {
	for win.Memory()[flag] == 0 {
		w.Compute(200 * time.Nanosecond) // meanwhile the runtime makes progress in the background
	}
	if got := win.Memory()[value]; got != 42 {
		return fmt.Errorf("the flag is set, and the value is %d", got)
	}
	return nil
}
