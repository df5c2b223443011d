package work_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// tree is a collective operation with data of root, whose rounds are measured.
type tree struct {
	n    int
	all  []byte // at root
	mine []byte
}

func (t *tree) broadcast(w *mpi.World) error {
	if w.Rank() == 0 {
		return w.Bcast(t.all[:t.n], 0)
	}
	return w.Bcast(t.mine, 0)
}

// scatter uses a binomial tree: a child receives the data for itself and its subtree.
// Intermediate ranks receive it into new memory.
func (t *tree) scatter(w *mpi.World) error {
	me, ranks, data := w.Rank(), w.Size(), t.all
	half := 1
	for half < ranks && me&half == 0 {
		half *= 2
	}
	if me != 0 {
		if data = t.mine; half > 1 {
			data = make([]byte, half*t.n)
		}
		if _, err := w.Recv(data, me-half, 1); err != nil {
			return err
		}
	}
	var sends []*mpi.Request
	for half /= 2; half > 0; half /= 2 {
		r, err := w.Isend(data[half*t.n:2*half*t.n], me+half, 1)
		if err != nil {
			return err
		}
		sends = append(sends, r)
	}
	copy(t.mine, data)
	return must.Err(mpi.WaitAll(sends))
}

// timeUntilAllReceived is the mean time of an operation from root's call until the last
// rank has its data.
func timeUntilAllReceived(t *testing.T, ranks, n int, off bool, operation func(*tree, *mpi.World) error) time.Duration {
	t.Helper()
	const rounds = 150
	var total, began, received time.Duration // of the clock that all ranks share
	o := mpi.Options{Carrier: platformConfig(carrier.Config{Design: carrier.SRQ, Reuse: memory.Reuse{Off: off}})}
	o.P2P.EagerLimit = eagerMax
	_, err := mpihost.InWorld(platformFabric(ranks, fastPath()), func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			t := &tree{n: n, mine: make([]byte, n)}
			if w.Rank() == 0 {
				t.all = slices.Repeat([]byte{1, 2, 3, 4}, n*ranks/4)
			}
			for range rounds {
				if err := w.Barrier(); err != nil {
					return err
				}
				if w.Rank() == 0 {
					w.Compute(20 * time.Microsecond) // all ranks have entered and wait
					began, received = w.Wtime(), 0
				}
				if err := operation(t, w); err != nil {
					return err
				}
				if w.Rank()%2 == 1 { // leaves; ranks that forward data may have it earlier
					received = max(received, w.Wtime())
				}
				if w.Rank() != 0 && !slices.Equal(t.mine, slices.Repeat([]byte{1, 2, 3, 4}, n/4)) {
					return fmt.Errorf("rank %d received wrong data", w.Rank())
				}
				if err := w.Barrier(); err != nil {
					return err
				}
				if w.Rank() == 0 {
					total += received - began
				}
			}
			return nil
		})
	})
	must.Do(t, err)
	return total / rounds
}

// A broadcast along a tree gains at every step, and so does a scatter up to 4 KB; beyond,
// the message to the first child is too large for eager (Rashti 2010 Fig. 5.9). There a
// broadcast gains up to 25 %, because the copies for all children count; here the second
// copy overlaps with the first message, and only copies on the critical path count.
func TestReuseSpeedsUpTrees(t *testing.T) {
	gained := func(ranks, n int, operation func(*tree, *mpi.World) error) float64 {
		without, with := timeUntilAllReceived(t, ranks, n, true, operation), timeUntilAllReceived(t, ranks, n, false, operation)
		return 1 - with.Seconds()/without.Seconds()
	}
	two, four := gained(2, 8<<10, (*tree).broadcast), gained(4, 8<<10, (*tree).broadcast)
	if two < 0.09 || four < two || four > 0.25 {
		t.Errorf("a broadcast of 8 KB takes %.1f %% less among 2 ranks and %.1f %% among 4", two*100, four*100)
	}
	if up, beyond := gained(4, 4<<10, (*tree).scatter), gained(4, 5<<10, (*tree).scatter); up < 0.04 || beyond > 0.01 {
		t.Errorf("a scatter of 4 KB takes %.1f %% less, and one of 5 KB %.1f %%", up*100, beyond*100)
	}
}
