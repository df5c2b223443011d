package mpi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// W is a window of one rank.
type W struct {
	Win
	t *T
}

// window allocates a window with n zero bytes for each rank. It is freed at the end of the
// case unless the case frees it.
func (t *T) window(n int) *W {
	win := result(t.WinAllocate(n))(t, "WinAllocate")
	t.check(win != nil && len(win.Memory()) == n, fmt.Sprintf("a window of %d bytes", n), "%v", win)
	w := &W{win, t}
	*t.windows = append(*t.windows, w)
	return w
}

func (w *W) put(d []byte, target, at int)       { w.t.must("Put", w.Put(d, target, at)) }
func (w *W) get(d []byte, target, at int)       { w.t.must("Get", w.Get(d, target, at)) }
func (w *W) fence(a mpi.Assert)                 { w.t.must("Fence", w.Fence(a)) }
func (w *W) post(group ...int)                  { w.t.must("Post", w.Post(group, 0)) }
func (w *W) start(group ...int)                 { w.t.must("Start", w.Start(group, 0)) }
func (w *W) complete()                          { w.t.must("Complete", w.Complete()) }
func (w *W) wait()                              { w.t.must("Wait", w.Wait()) }
func (w *W) lock(kind mpi.LockKind, target int) { w.t.must("Lock", w.Lock(kind, target, 0)) }
func (w *W) unlock(target int)                  { w.t.must("Unlock", w.Unlock(target)) }
func (w *W) lockAll()                           { w.t.must("LockAll", w.LockAll(0)) }
func (w *W) unlockAll()                         { w.t.must("UnlockAll", w.UnlockAll()) }
func (w *W) flush(target int)                   { w.t.must("Flush", w.Flush(target)) }
func (w *W) sync()                              { w.t.must("Sync", w.Sync()) }

// lockedPut puts d into the window of target, and completes the put by releasing an exclusive lock.
func (w *W) lockedPut(d []byte, target, at int) {
	w.lock(mpi.Exclusive, target)
	w.put(d, target, at)
	w.unlock(target)
}

// flushedPut puts d into the window of target, and flushes it. The caller holds a lock.
func (w *W) flushedPut(d []byte, target, at int) {
	w.put(d, target, at)
	w.flush(target)
}

// expectFlushedGet gets len(want) bytes of the window of target, and ends the rank unless they are
// want. The caller holds a lock.
func (w *W) expectFlushedGet(name string, want []byte, target, at int) {
	r := newGuardedBuf(len(want))
	w.get(r.buf, target, at)
	w.flush(target)
	w.t.expectBuffer(name, r, want)
}

// expectGet gets len(want) bytes of the window of target under a shared lock, and ends the rank
// unless they are want.
func (w *W) expectGet(name string, want []byte, target, at int) {
	r := newGuardedBuf(len(want))
	w.lock(mpi.Shared, target)
	w.get(r.buf, target, at)
	w.unlock(target)
	w.t.expectBuffer(name, r, want)
}

// expectGets gets n bytes at an offset (at) of every rank's window, and ends the rank unless those
// of each rank are want(rank). complete completes the gets.
func (w *W) expectGets(at, n int, complete func(), want func(rank int) []byte) {
	bufs := startAll(w.t.Size(), func(rank int) *guardedBuf {
		r := newGuardedBuf(n)
		w.get(r.buf, rank, at)
		return r
	})
	complete()
	for rank, r := range bufs {
		w.t.expectBuffer("the data of Get", r, want(rank))
	}
}

// getWord returns a word of the window of target. The caller holds a lock.
func (w *W) getWord(target, at int) uint64 {
	b := make([]byte, 8)
	w.get(b, target, at)
	w.flush(target)
	return number(b)
}

// free frees the window, and removes it from those that are freed at the end of the case.
func (w *W) free() {
	w.t.must("Free", w.Free())
	*w.t.windows = slices.DeleteFunc(*w.t.windows, func(other *W) bool { return other == w })
}

func (w *W) accumulate(d []byte, target, at int, t mpi.Type, op mpi.Op) {
	w.t.must("Accumulate", w.Accumulate(d, target, at, t, op))
}

// fetch applies op to an eight-byte word, and returns its old value. The caller holds a lock.
func (w *W) fetch(v uint64, target, at int, op mpi.Op) uint64 {
	old := make([]byte, 8)
	w.t.must("FetchAndOp", w.FetchAndOp(word(v), old, target, at, mpi.Uint64, op))
	w.flush(target)
	return number(old)
}

// swap sets a word to v if it equals compare, and returns its old value. The caller holds a lock.
func (w *W) swap(compare, v uint64, target, at int) uint64 {
	old := make([]byte, 8)
	w.t.must("CompareAndSwap", w.CompareAndSwap(word(v), word(compare), old, target, at, mpi.Uint64))
	w.flush(target)
	return number(old)
}

// readOwn reads the rank's own window under a lock, since other ranks write to it.
func (w *W) readOwn(at, n int) []byte {
	me := w.t.Rank()
	w.lock(mpi.Shared, me)
	b := bytes.Clone(w.Memory()[at : at+n])
	w.unlock(me)
	return b
}

// initOwn writes the rank's own window under a lock, and waits until all ranks have written theirs.
func (w *W) initOwn(at int, d []byte) {
	me := w.t.Rank()
	w.lock(mpi.Exclusive, me)
	copy(w.Memory()[at:], d)
	w.unlock(me)
	w.t.barrier()
}

// expectOwn ends the rank unless its own window has this content.
func (w *W) expectOwn(name string, at int, want []byte) {
	w.t.expectEqual(name, w.readOwn(at, len(want)), want)
}

// expectOwnAfterBarrier waits for all ranks, then ends the rank unless its own window has want.
func (w *W) expectOwnAfterBarrier(name string, at int, want []byte) {
	w.t.barrier()
	w.expectOwn(name, at, want)
}

// word encodes a number for a window, and number decodes it.
func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func number(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// words encodes several numbers.
func words(vs ...uint64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}
