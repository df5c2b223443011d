package mpi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Concurrent accumulates on the same elements have the same result as sequential ones.
func TestAccumulatesAreAtomic(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		const n, each = 6, 3
		for _, typ := range allTypes {
			win := must.Get(w.WinAllocate(n*typ.Size() + 8))(t)
			start := elements(typ, 50, n)
			copy(win.Memory(), start)
			for op := Sum; op <= NoOp; op++ {
				if !op.ValidFor(typ) || op == Replace {
					continue
				}
				copy(win.Memory(), start)
				must.Do(t, win.Fence(0))
				for i := range each {
					must.Do(t, win.Accumulate(elements(typ, w.Rank()*each+i, n), 1, 0, typ, op))
				}
				must.Do(t, win.Fence(0))
				if w.Rank() == 1 {
					want := bytes.Clone(start)
					for r := range w.Size() * each {
						for i := range n {
							part := want[i*typ.Size() : (i+1)*typ.Size()]
							copy(part, reduceReference(typ, op, part, element(typ, r, i)))
						}
					}
					if got := win.Memory(); !bytes.Equal(got[:len(want)], want) || !bytes.Equal(got[len(want):], make([]byte, 8)) {
						return fmt.Errorf("%v of %v: %x, want %x", op, typ, got, want)
					}
				}
				must.Do(t, win.Fence(0))
			}
			must.Do(t, win.Free())
		}
		return nil
	})
}

// Each concurrent FetchAndOp increment returns a unique number, for every type.
func TestFetchAndOpCounts(t *testing.T) {
	inBothProgressModes(t, 5, func(w *World) error {
		const each = 8
		for _, typ := range []Type{Byte, Uint32, Int64, Uint64} {
			win := must.Get(w.WinAllocate(32))(t)
			at := 3 * typ.Size() // its neighbours stay as they are
			must.Do(t, win.LockAll(0))
			one := u64(1)[:typ.Size()]
			seen := make([]byte, each*5)
			for range each {
				old := make([]byte, typ.Size())
				must.Do(t, win.FetchAndOp(one, old, 2, at, typ, Sum))
				must.Do(t, win.Flush(2))
				number := append(old, make([]byte, 8)...)
				seen[binary.LittleEndian.Uint64(number)]++
			}
			must.Do(t, win.UnlockAll())
			must.Do(t, w.Allreduce(seen, Byte, Sum))
			if !bytes.Equal(seen, bytes.Repeat([]byte{1}, len(seen))) {
				return fmt.Errorf("%v: numbers were given %v times", typ, seen)
			}
			if w.Rank() == 2 {
				want := make([]byte, 32)
				copy(want[at:], u64(each * 5)[:typ.Size()])
				if !bytes.Equal(win.Memory(), want) {
					return fmt.Errorf("%v: %x, want %x", typ, win.Memory(), want)
				}
			}
			must.Do(t, win.Free())
		}
		return nil
	})
}

// A spin lock made of CompareAndSwap admits one rank at a time, for every valid type.
func TestCompareAndSwapLockIsExclusive(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		for _, typ := range []Type{Byte, Int32, Uint64} {
			win := must.Get(w.WinAllocate(32))(t)
			must.Do(t, win.LockAll(0))
			me, free, was := u64(uint64(w.Rank() + 1))[:typ.Size()], make([]byte, typ.Size()), make([]byte, typ.Size())
			at := typ.Size()
			for range 3 {
				for {
					must.Do(t, errors.Join(win.CompareAndSwap(me, free, was, 0, at, typ), win.Flush(0)))
					if bytes.Equal(was, free) {
						break
					}
				}
				// Non-atomic updates are safe while the lock is held.
				count := make([]byte, 8)
				must.Do(t, errors.Join(win.Get(count, 0, 24), win.Flush(0)))
				must.Do(t, errors.Join(win.Put(u64(at64(count, 0)+1), 0, 24), win.Flush(0)))
				must.Do(t, errors.Join(win.CompareAndSwap(free, me, was, 0, at, typ), win.Flush(0)))
				if !bytes.Equal(was, me) {
					return fmt.Errorf("%v: it has %x while rank %d is inside", typ, was, w.Rank())
				}
			}
			must.Do(t, win.UnlockAll())
			must.Do(t, w.Barrier())
			if w.Rank() == 0 && at64(win.Memory(), 3) != 12 {
				return fmt.Errorf("%v: %d were inside", typ, at64(win.Memory(), 3))
			}
			must.Do(t, win.Free())
		}
		return nil
	})
}

// Accumulates of one origin on the same elements are executed in order, whatever is
// between them.
func TestAccumulatesOfOneOriginAreOrdered(t *testing.T) {
	inBothProgressModes(t, 2, func(w *World) error {
		const n = 40 // elements: several words, chunks, and rounds of atomics
		win := must.Get(w.WinAllocate(4 * n))(t)
		must.Do(t, win.Fence(0))
		r := rand.New(rand.NewPCG(uint64(w.Size()), 4))
		model := make([]byte, 4*n)
		var got, want [][]byte
		if w.Rank() == 0 {
			for i := range 60 {
				from := r.IntN(n)
				to := from + 1 + r.IntN(n-from)
				op := []Op{Replace, Sum, NoOp, BXor, Max}[r.IntN(5)]
				part, origin := model[4*from:4*to], elements(Uint32, i, to-from)
				result := make([]byte, len(part))
				want, got = append(want, bytes.Clone(part)), append(got, result)
				must.Do(t, win.GetAccumulate(origin, result, 1, 4*from, Uint32, op))
				for k := 0; k < len(part); k += 4 {
					copy(part[k:k+4], reduceReference(Uint32, op, part[k:k+4], origin[k:k+4]))
				}
			}
		}
		must.Do(t, win.Fence(0))
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				return fmt.Errorf("operation %d found %x, want %x", i, got[i], want[i])
			}
		}
		must.Do(t, w.Bcast(model, 0))
		if w.Rank() == 1 && !bytes.Equal(win.Memory(), model) {
			return fmt.Errorf("%x, want %x", win.Memory(), model)
		}
		return errors.Join(win.Fence(0), win.Free())
	})
}
