package mpi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// Concurrent accumulates on the same elements have the same result as sequential ones.
func TestAccumulatesAreAtomic(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		const n, each = 6, 3
		for _, typ := range allTypes {
			win, err := w.WinAllocate(n*typ.Size() + 8)
			if err != nil {
				return err
			}
			start := elements(typ, 50, n)
			copy(win.Memory(), start)
			for op := Sum; op <= NoOp; op++ {
				if !op.ValidFor(typ) || op == Replace {
					continue
				}
				copy(win.Memory(), start)
				if err := win.Fence(0); err != nil {
					return err
				}
				for i := range each {
					if err := win.Accumulate(elements(typ, w.Rank()*each+i, n), 1, 0, typ, op); err != nil {
						return err
					}
				}
				if err := win.Fence(0); err != nil {
					return err
				}
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
				if err := win.Fence(0); err != nil {
					return err
				}
			}
			if err := win.Free(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Each concurrent FetchAndOp increment returns a unique number, for every type.
func TestFetchAndOpCounts(t *testing.T) {
	inBothProgressModes(t, 5, func(w *World) error {
		const each = 8
		for _, typ := range []Type{Byte, Uint32, Int64, Uint64} {
			win, err := w.WinAllocate(32)
			if err != nil {
				return err
			}
			at := 3 * typ.Size() // its neighbours stay as they are
			if err := win.LockAll(0); err != nil {
				return err
			}
			one := u64(1)[:typ.Size()]
			seen := make([]byte, each*5)
			for range each {
				old := make([]byte, typ.Size())
				if err := win.FetchAndOp(one, old, 2, at, typ, Sum); err != nil {
					return err
				}
				if err := win.Flush(2); err != nil {
					return err
				}
				number := append(old, make([]byte, 8)...)
				seen[binary.LittleEndian.Uint64(number)]++
			}
			if err := win.UnlockAll(); err != nil {
				return err
			}
			if err := w.Allreduce(seen, Byte, Sum); err != nil {
				return err
			}
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
			if err := win.Free(); err != nil {
				return err
			}
		}
		return nil
	})
}

// A spin lock made of CompareAndSwap admits one rank at a time, for every valid type.
func TestCompareAndSwapLockIsExclusive(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		for _, typ := range []Type{Byte, Int32, Uint64} {
			win, err := w.WinAllocate(32)
			if err != nil {
				return err
			}
			if err := win.LockAll(0); err != nil {
				return err
			}
			me, free, was := u64(uint64(w.Rank() + 1))[:typ.Size()], make([]byte, typ.Size()), make([]byte, typ.Size())
			at := typ.Size()
			for range 3 {
				for {
					if err := errors.Join(win.CompareAndSwap(me, free, was, 0, at, typ), win.Flush(0)); err != nil {
						return err
					}
					if bytes.Equal(was, free) {
						break
					}
				}
				// Non-atomic updates are safe while the lock is held.
				count := make([]byte, 8)
				if err := errors.Join(win.Get(count, 0, 24), win.Flush(0)); err != nil {
					return err
				}
				if err := errors.Join(win.Put(u64(at64(count, 0)+1), 0, 24), win.Flush(0)); err != nil {
					return err
				}
				if err := errors.Join(win.CompareAndSwap(free, me, was, 0, at, typ), win.Flush(0)); err != nil {
					return err
				}
				if !bytes.Equal(was, me) {
					return fmt.Errorf("%v: it has %x while rank %d is inside", typ, was, w.Rank())
				}
			}
			if err := win.UnlockAll(); err != nil {
				return err
			}
			if err := w.Barrier(); err != nil {
				return err
			}
			if w.Rank() == 0 && at64(win.Memory(), 3) != 12 {
				return fmt.Errorf("%v: %d were inside", typ, at64(win.Memory(), 3))
			}
			if err := win.Free(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Accumulates of one origin on the same elements are executed in order, whatever is
// between them.
func TestAccumulatesOfOneOriginAreOrdered(t *testing.T) {
	inBothProgressModes(t, 2, func(w *World) error {
		const n = 40 // elements: several words, chunks, and rounds of atomics
		win, err := w.WinAllocate(4 * n)
		if err != nil {
			return err
		}
		if err := win.Fence(0); err != nil {
			return err
		}
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
				if err := win.GetAccumulate(origin, result, 1, 4*from, Uint32, op); err != nil {
					return err
				}
				for k := 0; k < len(part); k += 4 {
					copy(part[k:k+4], reduceReference(Uint32, op, part[k:k+4], origin[k:k+4]))
				}
			}
		}
		if err := win.Fence(0); err != nil {
			return err
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				return fmt.Errorf("operation %d found %x, want %x", i, got[i], want[i])
			}
		}
		if err := w.Bcast(model, 0); err != nil {
			return err
		}
		if w.Rank() == 1 && !bytes.Equal(win.Memory(), model) {
			return fmt.Errorf("%x, want %x", win.Memory(), model)
		}
		return errors.Join(win.Fence(0), win.Free())
	})
}
