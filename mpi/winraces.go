package mpi

import (
	"github.com/fabrictest/fabrictest/mpi/racecheck"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// raceID identifies the window for the race checker.
func (w *Win) raceID() racecheck.WindowID {
	return racecheck.WindowID{Context: w.c.context, First: w.c.worldRank(0)}
}

// openWindow records the local memory of a window.
func (h *races) openWindow(w *Win) {
	h.checker.OpenWindow(h.k.place(), w.raceID(), w.c.name, w.c.me, w.c.size, w.mem)
}

// closeWindow records that a window is freed.
func (h *races) closeWindow(w *Win) {
	h.checker.CloseWindow(h.k.place(), w.raceID())
	delete(h.exposed, w)
	delete(h.started, w)
}

// startOp records and starts an operation. It is recorded first: its effect may be seen before the call returns.
func (h *races) startOp(w *Win, a window.Access) (*window.Operation, error) {
	rma := racecheck.RMA{
		Window: w.raceID(), Target: a.Rank, Offset: a.Offset, Bytes: len(a.Origin),
		Reads: [][]byte{a.Origin, a.Compare}, Writes: [][]byte{a.Result},
	}
	switch a.Kind {
	case window.PutOp:
		rma.Kind = racecheck.Put
	case window.GetOp:
		rma.Kind, rma.Bytes = racecheck.Get, len(a.Result)
	default:
		rma.Kind, rma.Element = racecheck.AtomicWrite, racecheck.Element{Type: uint8(a.Type), Size: a.Type.Size()}
		if a.Kind == window.AccumulateOp && a.Op == NoOp {
			rma.Kind, rma.Bytes, rma.Reads = racecheck.AtomicRead, len(a.Result), nil
		}
	}
	o := h.checker.Start(h.k.place(), rma)
	op, err := w.engine.StartOp(a)
	if err != nil {
		h.checker.Failed(o)
	} else if a.Request {
		h.rma[op] = o
	}
	return op, err
}

// fence records a fence, whose operations are complete.
func (h *races) fence(w *Win, a Assert) { h.checker.Fence(h.k.place(), w.raceID(), a&NoPrecede == 0) }

// openEpoch records a Post or a Start.
func (h *races) openEpoch(w *Win, call string, group []int, a Assert) {
	group = append([]int(nil), group...)
	if call == "Post" {
		h.exposed[w] = group
		h.checker.Post(h.k.place(), w.raceID(), group)
		return
	}
	h.started[w] = group
	h.checker.StartEpoch(h.k.place(), w.raceID(), group, a&NoCheck != 0)
}

// complete records the end of an access epoch.
func (h *races) complete(w *Win) { h.checker.Complete(h.k.place(), w.raceID(), h.started[w]) }

// closeExposure records the end of an exposure epoch, if one was open.
func (h *races) closeExposure(w *Win) {
	h.checker.WaitEpoch(h.k.place(), w.raceID(), h.exposed[w])
	delete(h.exposed, w)
}

// lock records that a lock is held. With NoCheck no lock is taken.
func (h *races) lock(w *Win, target int, kind LockKind, a Assert) {
	if a&NoCheck == 0 {
		h.checker.Lock(h.k.place(), w.raceID(), target, kind == Exclusive)
	}
}

// completeOps records a call that has completed operations: an unlock or a flush.
func (h *races) completeOps(w *Win, call string, target int) {
	switch call {
	case "Unlock", "UnlockAll":
		h.checker.Unlock(h.k.place(), w.raceID(), target)
	default:
		isLocal := call == "FlushLocal" || call == "FlushLocalAll"
		h.checker.Flush(h.k.place(), w.raceID(), target, isLocal)
	}
}

// LoadLocal returns n bytes of the local memory of the window, to be read before the next call. It tells the
// race checker of this load, which the checker cannot see by itself.
func (w *Win) LoadLocal(offset, n int) []byte {
	part := w.mem[offset:][:n:n]
	w.c.NoteLoad(part)
	return part
}

// StoreLocal copies data to the local memory of the window, and tells the race checker of this store.
func (w *Win) StoreLocal(offset int, data []byte) {
	part := w.mem[offset:][:len(data)]
	w.c.NoteStore(part)
	copy(part, data)
}

// NoteLoad tells the race checker, if there is one, that the program reads a buffer between the last call and
// the next one.
func (c *Comm) NoteLoad(buf []byte) { c.note(racecheck.Load, buf) }

// NoteStore tells the race checker, if there is one, that the program changes a buffer between this call and
// the next one.
func (c *Comm) NoteStore(buf []byte) { c.note(racecheck.Store, buf) }

func (c *Comm) note(kind racecheck.Kind, buf []byte) {
	if k := c.rank; k.races != nil {
		k.lock()
		k.races.touch(kind, buf)
		k.unlock()
	}
}
