package mpi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func at64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

// check returns an error unless ok.
func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func TestFence(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		const n = 200
		win := must.Get(w.WinAllocate(n * w.Size()))(t)
		copy(win.Memory(), bytes.Repeat([]byte{0xaa}, n*w.Size()))
		must.Do(t, win.Fence(NoPrecede))
		for round := range 3 {
			// Each rank puts a block to every rank, and then gets one from every rank.
			for to := range w.Size() {
				must.Do(t, win.Put(testMessage(10*round+w.Rank(), n), to, n*w.Rank()))
			}
			must.Do(t, win.Fence(0))
			for from := range w.Size() {
				if !bytes.Equal(win.Memory()[n*from:n*(from+1)], testMessage(10*round+from, n)) {
					return fmt.Errorf("round %d: wrong data put by rank %d", round, from)
				}
			}
			got := make([]byte, n*w.Size())
			for from := range w.Size() {
				must.Do(t, win.Get(got[n*from:n*(from+1)], from, n*w.Rank()))
			}
			must.Do(t, win.Fence(NoPut))
			if !bytes.Equal(got, bytes.Repeat(testMessage(10*round+w.Rank(), n), w.Size())) {
				return fmt.Errorf("round %d: wrong data from get", round)
			}
		}
		must.Do(t, win.Fence(NoSucceed))
		if err := win.Put(nil, 0, 0); !errors.Is(err, ErrRMASync) {
			return fmt.Errorf("a put after the last fence: %v", err)
		}
		return win.Free()
	})
}

func TestPostStartCompleteWait(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		win, err := w.WinAllocate(64 * w.Size())
		if err != nil {
			return err
		}
		// A ring: each rank exposes its window to the previous rank and writes to the next.
		before, behind := (w.Rank()+3)%4, (w.Rank()+1)%4
		for round := range 4 {
			w.Compute(time.Duration((w.Rank()*5+round)%7) * time.Microsecond)
			if round%2 == 0 {
				must.Do(t, win.Post([]int{before}, 0))
			}
			must.Do(t, win.Start([]int{behind}, 0))
			must.Do(t, win.Put(testMessage(round*4+w.Rank(), 64), behind, 0))
			must.Do(t, win.Accumulate(u64(5), behind, 64, Uint64, Sum))
			if round%2 == 1 { // operations may start before the post
				must.Do(t, win.Post([]int{before}, 0))
			}
			if err := win.Put(nil, before, 0); !errors.Is(err, ErrRMASync) {
				return fmt.Errorf("a put to a rank outside the group: %v", err)
			}
			must.Do(t, win.Complete())
			if round < 2 {
				err = win.Wait()
			} else {
				for done := false; !done && err == nil; {
					done, err = win.Test()
				}
			}
			if err != nil {
				return err
			}
			if !bytes.Equal(win.Memory()[:64], testMessage(round*4+before, 64)) || at64(win.Memory(), 8) != uint64(5*(round+1)) {
				return fmt.Errorf("round %d: %x", round, win.Memory()[:72])
			}
		}
		return win.Free()
	})
}

// Operations are not executed before the target's post, and several ranks may be exposed
// at once.
func TestOperationsWaitForPost(t *testing.T) {
	inBothProgressModes(t, 3, func(w *World) error {
		win := must.Get(w.WinAllocate(16))(t)
		if w.Rank() == 0 {
			for i := range 50 { // ours alone until we post
				win.Memory()[0], win.Memory()[8] = byte(i), byte(i)
				w.Compute(time.Microsecond)
				if win.Memory()[0] != byte(i) || win.Memory()[8] != byte(i) {
					return errors.New("the window was written before the post")
				}
			}
			must.Do(t, errors.Join(win.Post([]int{1, 2}, 0), win.Wait()))
			if at64(win.Memory(), 0) != 1 || at64(win.Memory(), 1) != 2 {
				return fmt.Errorf("%x", win.Memory())
			}
		} else if err := errors.Join(win.Start([]int{0}, 0), win.Put(u64(uint64(w.Rank())), 0, 8*(w.Rank()-1)), win.Complete()); err != nil {
			return err
		}
		return win.Free()
	})
}
