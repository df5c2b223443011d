package mpi

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// W is a window, and the rank that uses it.
type W struct {
	Win
	t *T
}

// window makes one of n bytes a rank, all zero.
func (t *T) window(n int) *W {
	w, err := t.WinAllocate(n)
	t.ok("WinAllocate", err)
	t.check(w != nil && len(w.Memory()) == n, fmt.Sprintf("a window of %d bytes", n), "%v", w)
	return &W{w, t}
}

func (w *W) put(d []byte, target, at int)       { w.t.ok("Put", w.Put(d, target, at)) }
func (w *W) get(d []byte, target, at int)       { w.t.ok("Get", w.Get(d, target, at)) }
func (w *W) fence(a mpi.Assert)                 { w.t.ok("Fence", w.Fence(a)) }
func (w *W) post(group ...int)                  { w.t.ok("Post", w.Post(group, 0)) }
func (w *W) start(group ...int)                 { w.t.ok("Start", w.Start(group, 0)) }
func (w *W) complete()                          { w.t.ok("Complete", w.Complete()) }
func (w *W) waits()                             { w.t.ok("Wait", w.Wait()) }
func (w *W) lock(kind mpi.LockKind, target int) { w.t.ok("Lock", w.Lock(kind, target, 0)) }
func (w *W) unlock(target int)                  { w.t.ok("Unlock", w.Unlock(target)) }
func (w *W) lockAll()                           { w.t.ok("LockAll", w.LockAll(0)) }
func (w *W) unlockAll()                         { w.t.ok("UnlockAll", w.UnlockAll()) }
func (w *W) flush(target int)                   { w.t.ok("Flush", w.Flush(target)) }
func (w *W) sync()                              { w.t.ok("Sync", w.Sync()) }
func (w *W) free()                              { w.t.ok("Free", w.Free()) }

func (w *W) accumulate(d []byte, target, at int, t mpi.Type, op mpi.Op) {
	w.t.ok("Accumulate", w.Accumulate(d, target, at, t, op))
}

// fetch does an operation on a word of eight bytes under a lock that is held, and
// returns what was there.
func (w *W) fetch(v uint64, target, at int, op mpi.Op) uint64 {
	old := make([]byte, 8)
	w.t.ok("FetchAndOp", w.FetchAndOp(word(v), old, target, at, mpi.Uint64, op))
	w.flush(target)
	return number(old)
}

// swap is a compare-and-swap, likewise.
func (w *W) swap(compare, v uint64, target, at int) uint64 {
	old := make([]byte, 8)
	w.t.ok("CompareAndSwap", w.CompareAndSwap(word(v), word(compare), old, target, at, mpi.Uint64))
	w.flush(target)
	return number(old)
}

// mine reads the rank's own window, as a program must that others write to: under a lock.
func (w *W) mine(at, n int) []byte {
	me := w.t.Rank()
	w.lock(mpi.Shared, me)
	b := append([]byte(nil), w.Memory()[at:at+n]...)
	w.unlock(me)
	return b
}

// fill writes the rank's own window, under a lock.
func (w *W) fill(at int, d []byte) {
	me := w.t.Rank()
	w.lock(mpi.Exclusive, me)
	copy(w.Memory()[at:], d)
	w.unlock(me)
}

func (w *W) shows(what string, at int, want []byte) { w.t.same(what, w.mine(at, len(want)), want) }

// word and number are a number of a window's memory.
func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func number(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// words are several.
func words(vs ...uint64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}
