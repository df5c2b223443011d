package mpi

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// Win is a window: memory of each rank of a communicator that the others can reach.
// Offsets are in bytes. Operations begin, and are complete when their epoch is
// closed, or flushed; until then their buffers belong to the runtime.
type Win struct {
	c     *Comm // of its own, with the same ranks
	w     *window.Window
	mem   []byte
	freed bool
}

// WinCreate makes a window of each rank's buffer, which may be empty. It is
// collective. Accumulates are fastest on buffers that begin at a multiple of eight
// bytes and are as long; WinAllocate's are.
func (c *Comm) WinCreate(buf []byte) (*Win, error) {
	return c.createWin("WinCreate", buf, len(buf), nil)
}

// WinAllocate makes a window of memory of its own. It is collective; each rank may
// have another size.
func (c *Comm) WinAllocate(size int) (*Win, error) {
	if size < 0 { // the others must not wait for us
		return c.createWin("WinAllocate", nil, 0, fmt.Errorf("%w: %d bytes", ErrArg, size))
	}
	words := make([]uint64, (size+7)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	return c.createWin("WinAllocate", mem, size, nil)
}

// makeWin makes a window of memory, of which the first size bytes count. With an
// error, it only tells the others that there will be none.
func (c *Comm) createWin(call string, mem []byte, size int, err error) (*Win, error) {
	if uerr := c.check(); uerr != nil {
		return nil, c.raise(call, uerr)
	}
	c.k.lock()
	w, err := c.createWinLocked(mem, size, err)
	c.k.unlock()
	return w, c.raise(call, err)
}

// openWin makes a window with the others. The lock is held. Whatever fails at one of
// them, all of them learn of it.
func (c *Comm) createWinLocked(mem []byte, size int, err error) (*Win, error) {
	d, derr := c.dup(c.name + ".window")
	if derr != nil {
		return nil, errors.Join(err, derr)
	}
	engine := c.k.windows
	local, region, rerr := engine.RegisterSegment(mem, c.k.carrier.Atomics() && address(mem)%8 == 0)
	local.Size = size
	parts, gerr := d.exchangeSegments(local, c.k.carrier.Atomics(), errors.Join(err, rerr))
	if gerr != nil {
		engine.ReleaseSegment(region)
		d.free()
		return nil, gerr
	}
	w := &Win{c: d, mem: mem[:size:size]}
	w.w = engine.Open(d.context, parts, w.mem, region)
	// Nobody begins before everybody knows it.
	if err := d.barrier(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// close gives back what the window has. The lock is held.
func (w *Win) close() {
	w.freed = true
	w.w.Close()
	w.c.free()
}

// usable says why a window cannot be used.
func (w *Win) check() error {
	switch {
	case w == nil:
		return fmt.Errorf("%w: there is none", ErrWin)
	case w.freed:
		return fmt.Errorf("%w: it was freed", ErrWin)
	}
	return w.c.check()
}

// comm is the communicator whose handler errors go to.
func (w *Win) comm() *Comm {
	if w == nil {
		return nil
	}
	return w.c
}

// Memory is this rank's own.
func (w *Win) Memory() []byte { return w.mem }

// Size is how many bytes a rank's window has.
func (w *Win) Size(rank int) int { return w.w.Size(rank) }

// Comm is the communicator of the window's ranks. It belongs to the window.
func (w *Win) Comm() *Comm { return w.c }

// call does something with the window, within the lock, if it can be used.
func (w *Win) call(name string, do func(*window.Window) error) error {
	err := w.check()
	if err == nil {
		w.c.k.lock()
		err = do(w.w)
		w.c.k.unlock()
	}
	return w.comm().raise(name, err)
}

// Free gives the window back. It is collective, and no epoch may be open.
func (w *Win) Free() error {
	return w.call("Win.Free", func(e *window.Window) error {
		if err := e.CheckNoEpoch(); err != nil {
			return err
		}
		err := w.c.barrier()
		w.close()
		return err
	})
}

// checkTarget says what is wrong with a rank whose window is to be reached.
func (w *Win) checkTarget(rank int) error {
	if rank < 0 || rank >= w.c.size {
		return fmt.Errorf("%w: target %d; the window has ranks 0 to %d, and ProcNull is nobody", ErrRank, rank, w.c.size-1)
	}
	return nil
}

// checkGroup says what is wrong with a group.
func (w *Win) checkGroup(group []int) error {
	seen := make(map[int]bool, len(group))
	for _, r := range group {
		if err := w.checkTarget(r); err != nil {
			return err
		}
		if seen[r] {
			return fmt.Errorf("%w: rank %d is in the group twice", ErrArg, r)
		}
		seen[r] = true
	}
	return nil
}
