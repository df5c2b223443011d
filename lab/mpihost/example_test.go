package mpihost_test

import (
	"fmt"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// The program runs on three ranks of a simulated fabric. A standalone program passes it
// to mpi.Main instead.
func Example() {
	program := func(w *mpi.World) error {
		right, left := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
		got := make([]byte, 1)
		if _, err := w.Sendrecv([]byte{byte(w.Rank())}, right, 0, got, left, 0); err != nil {
			return err
		}
		win, err := w.WinAllocate(8 * w.Size())
		if err != nil {
			return err
		}
		if err := win.Fence(0); err != nil {
			return err
		}
		if err := win.Put(got, 0, 8*w.Rank()); err != nil {
			return err
		}
		if err := win.Fence(mpi.NoSucceed); err != nil {
			return err
		}
		if w.Rank() == 0 {
			for r := range w.Size() {
				fmt.Println("rank", r, "received", win.Memory()[8*r])
			}
		}
		return win.Free()
	}
	_, err := mpihost.InWorld(mpihost.Fabric{Ranks: 3}, func(e *transport.Env) error { return mpi.Run(e, mpi.Options{}, program) })
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 0 received 2
	// rank 1 received 0
	// rank 2 received 1
}
