package racecheck_test

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
)

// A store of the program that it does not tell is found by its effect, at the next call of the rank.
func TestUnannotatedStoresAreFound(t *testing.T) {
	store := func(r rank, inPhase bool) {
		win := r.window(16)
		if r.Rank() == 1 && !inPhase {
			win.Memory()[3] = 1
		}
		r.do(win.Fence(0))
		if r.Rank() == 1 && inPhase {
			r.Compute(1e6) // the put has arrived
			win.Memory()[3] = 1
		}
		if r.Rank() == 0 {
			r.do(win.Put(buffer(8), 1, 8))
			r.do(win.Get(buffer(8), 1, 0))
		}
		r.do(win.Fence(0)) // the next call
		if r.Rank() == 1 {
			q := r.request(r.Isend(nil, 0, 0))
			win.Memory()[4]++ // not ordered by the message
			r.wait(q)
		} else {
			r.receive(1)
			r.do(win.Lock(mpi.Shared, 1, 0))
			r.do(win.Get(buffer(2), 1, 3))
			r.do(win.Unlock(1))
		}
		r.do(r.Barrier())
	}
	for inPhase, want := range map[bool]int{false: 1, true: 2} {
		found := simulate(t, 2, func(r rank) { store(r, inPhase) })
		if len(found) != want {
			t.Errorf("in the phase: %v: %v", inPhase, found)
		}
		for _, f := range found {
			if !strings.Contains(f.Text, "store between ") || !strings.Contains(f.Text, "1 bytes at offset ") {
				t.Error(f.Text)
			}
		}
	}
}

// Operations and receives that write to a window are not taken for stores of the program, whenever their
// effect is seen.
func TestWritesOfOperationsAreNoStores(t *testing.T) {
	found := simulate(t, 2, func(r rank) {
		win := r.window(64)
		ones := []byte{1, 1, 1, 1, 1, 1, 1, 1}
		r.do(win.LockAll(0))
		for i := range 20 {
			if r.Rank() == 0 {
				ones[0] = byte(i + 1)
				r.do(win.Put(ones, 1, 0))
				r.do(win.Accumulate(ones, 1, 8, mpi.Int64, mpi.Sum))
				r.do(win.Get(win.Memory()[16:24], 1, 16))
				r.do(r.Send(ones, 1, 0))
				r.do(win.FlushAll())
			} else {
				q := r.request(r.Irecv(win.Memory()[32:40], 0, 0))
				for done := false; !done; {
					var err error
					_, done, err = q.Test()
					r.do(err)
					r.NoteLoad(ones) // the checker compares the memory
				}
				win.StoreLocal(40, []byte{byte(i), 2, 3})
			}
		}
		r.do(win.UnlockAll())
		r.do(r.Bcast(win.Memory()[48:56], 0))
		r.do(win.Free())
	})
	if len(found) > 0 {
		t.Error(found)
	}
}

// Many accesses are kept only as long as a rank may do one that races with them.
func TestOldAccessesAreForgotten(t *testing.T) {
	c := racecheck.New(3)
	observe(t, c, func(r rank) {
		mem := make([]byte, 1<<16)
		win := r.window(8)
		if r.Rank() == 2 {
			r.Compute(1e9)
		}
		for i := range 3000 {
			r.NoteStore(mem[16*i:][:16])
			if r.Rank() == 1 && i == 2000 {
				win.StoreLocal(0, buffer(4))
			}
		}
		if r.Rank() == 1 {
			r.do(r.Send(nil, 0, 0))
		}
		r.do(win.Lock(mpi.Shared, 1, 0))
		if r.Rank() == 2 {
			r.do(win.Get(buffer(8), 1, 0)) // rank 1 has stored since
		}
		r.do(win.Unlock(1))
		if r.Rank() == 0 {
			r.receive(1)
		}
		r.do(r.Barrier())
	})
	if found, _ := c.Findings(); len(found) != 1 {
		t.Error(found)
	}
}
