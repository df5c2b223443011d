// Command wildcard has a race of messages: rank 0 takes the results of the other ranks in the order in which they
// arrive, as if that were the order of ranks. It works in nearly every run.
//
//	go build -o /tmp/wildcard ./examples/wildcard
//	go run ./cmd/fabrictest explore -n 3 --out /tmp/wildcard.replay /tmp/wildcard
//	go run ./cmd/fabrictest replay /tmp/wildcard.replay --html /tmp/wildcard.html
//
// With -status, rank 0 uses the source of each message, and no run fails.
package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	_ "github.com/fabrictest/fabrictest/lab/mpihost" // the launcher of ranks
	"github.com/fabrictest/fabrictest/mpi"
)

func main() { mpi.Main(gather(slices.Contains(os.Args, "-status"))) }

// gather returns the program of a rank: the result of rank r is 10·r.
func gather(usesStatus bool) func(w *mpi.World) error {
	return func(w *mpi.World) error {
		if w.Rank() > 0 {
			w.Compute(time.Duration(w.Rank()) * time.Microsecond) // the messages start in the order of ranks
			return w.Send([]byte{byte(10 * w.Rank())}, 0, 0)
		}
		results := make([]byte, w.Size())
		for i := 1; i < w.Size(); i++ {
			var result [1]byte
			status, err := w.Recv(result[:], mpi.AnySource, 0)
			if err != nil {
				return err
			}
			from := i
			if usesStatus {
				from = status.Source
			}
			results[from] = result[0]
		}
		for rank, result := range results {
			if int(result) != 10*rank {
				return fmt.Errorf("the result of rank %d is %d", rank, result)
			}
		}
		return nil
	}
}
