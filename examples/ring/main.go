// Command ring is a program of several ranks, as small as one can be: a number goes
// from rank to rank and grows. Run it with
//
//	go build -o /tmp/ring ./examples/ring
//	go run ./cmd/fabrictest mpirun -n 4 /tmp/ring
//	go run ./cmd/fabrictest mpirun -n 64 --on sim --seed 7 /tmp/ring
package main

import (
	"encoding/binary"
	"fmt"

	_ "github.com/fabrictest/fabrictest/lab/mpihost" // the launcher of ranks
	"github.com/fabrictest/fabrictest/mpi"
)

func main() { mpi.Main(ring) }

// ring is the program of a rank: it receives the sum from the previous rank, adds its own
// rank and sends the sum to the next. Rank 0 starts with 0, and prints the sum that returns.
func ring(w *mpi.World) error {
	next, prev := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	sum := make([]byte, 8)
	if w.Rank() > 0 {
		if _, err := w.Recv(sum, prev, 0); err != nil {
			return err
		}
	}
	binary.LittleEndian.PutUint64(sum, binary.LittleEndian.Uint64(sum)+uint64(w.Rank()))
	if err := w.Send(sum, next, 0); err != nil {
		return err
	}
	if w.Rank() > 0 {
		return nil
	}
	if _, err := w.Recv(sum, prev, 0); err != nil {
		return err
	}
	fmt.Printf("all %d ranks were passed, and their numbers add up to %d\n", w.Size(), binary.LittleEndian.Uint64(sum))
	return nil
}
