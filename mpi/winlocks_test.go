package mpi_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
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

func TestLockNoCheckSendsNoRequest(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(mpi.Options{}, func(w *mpi.World) error {
		win, err := w.WinAllocate(8)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			err = errors.Join(win.Lock(mpi.Exclusive, 1, mpi.NoCheck), win.Put(u64(1), 1, 0), win.Unlock(1),
				win.LockAll(mpi.NoCheck), win.Put(u64(2), 1, 0), win.UnlockAll(), w.Barrier(),
				win.Start([]int{1}, mpi.NoCheck), win.Put(u64(3), 1, 0), win.Complete())
			sent := w.Stats().Window.ControlMessages
			sent[6] = 0 // the Complete
			return errors.Join(err, check(sent == [16]uint64{}, "messages %v", sent), win.Free())
		}
		err = errors.Join(win.Post([]int{0}, mpi.NoCheck), w.Barrier(), win.Wait())
		return errors.Join(err, check(at64(win.Memory(), 0) == 3, "%x", win.Memory()), win.Free())
	})
}

// Operations in a LockAll epoch wait for the holder of an exclusive lock, without blocking
// their origin.
func TestLockAllOperationsWaitForExclusiveLock(t *testing.T) {
	inBothProgressModes(t, 3, func(w *mpi.World) error {
		win := must.Get(w.WinAllocate(8))(t)
		switch w.Rank() {
		case 1: // holds the lock until rank 0 has started its put
			must.Do(t, win.Lock(mpi.Exclusive, 2, 0))
			must.Do(t, w.Send(nil, 0, 1))
			must.Get(w.Recv(nil, 0, 2))(t)
			w.Compute(20 * time.Microsecond)
			got := make([]byte, 8)
			must.Do(t, errors.Join(win.Get(got, 2, 0), win.Flush(2), check(at64(got, 0) == 0, "the window was written while locked")))
			must.Do(t, win.Unlock(2))
		case 0:
			must.Get(w.Recv(nil, 1, 1))(t)
			must.Do(t, errors.Join(win.LockAll(0), win.Put(u64(9), 2, 0), w.Send(nil, 1, 2), win.UnlockAll()))
		}
		return errors.Join(w.Barrier(), check(w.Rank() != 2 || at64(win.Memory(), 0) == 9, "%x", win.Memory()), win.Free())
	})
}
