// Command headtohead depends on buffers: two ranks send to each other, and then receive. Short messages are buffered,
// and long ones wait for their receives for ever.
//
//	go build -o /tmp/headtohead ./examples/headtohead
//	go run ./cmd/fabrictest explore --out /tmp/headtohead.replay /tmp/headtohead -bytes 1000000
//	go run ./cmd/fabrictest mpirun -n 2 --on sim --check unsafe /tmp/headtohead
//
// The second command finds the error with short messages, too.
package main

import (
	"flag"

	_ "github.com/fabrictest/fabrictest/lab/mpihost" // the launcher of ranks
	"github.com/fabrictest/fabrictest/mpi"
)

func main() {
	bytes := flag.Int("bytes", 100, "size of the messages")
	flag.Parse()
	mpi.Main(exchange(*bytes))
}

// exchange returns the program of a rank.
func exchange(bytes int) func(w *mpi.World) error {
	return func(w *mpi.World) error {
		peer := 1 - w.Rank()
		if err := w.Barrier(); err != nil { // the first message between two ranks, which connects them, is not buffered
			return err
		}
		if err := w.Send(make([]byte, bytes), peer, 0); err != nil {
			return err
		}
		_, err := w.Recv(make([]byte, bytes), peer, 0)
		return err
	}
}
