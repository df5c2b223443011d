package mpi

import (
	"fmt"
	"time"
)

// World is what a rank's program is given: the communicator of all ranks, and what
// belongs to the rank itself.
type World struct {
	*Comm
}

// Self is the communicator of this rank alone.
func (w *World) Self() *Comm { return w.k.self }

// Wtime is the time since some moment in the past.
func (w *World) Wtime() time.Duration { return w.k.env.Proc.Now() }

// Compute keeps the processor busy for a while. In mode Polling nothing progresses
// meanwhile.
func (w *World) Compute(d time.Duration) {
	w.k.runUnlocked(func() { w.k.env.Proc.Compute(d) })
}

// Abort ends all ranks. It does not return.
func (w *World) Abort(code int, why string) { w.k.abort(code, why) }

// AbortError is what the rank ends with that has aborted all.
type AbortError struct {
	Code int
	Why  string
}

func (e *AbortError) Error() string { return fmt.Sprintf("aborted with code %d: %s", e.Code, e.Why) }

// abort ends all ranks, and leaves the program if whoever ends them lets it go on.
func (k *rank) abort(code int, why string) {
	k.runUnlocked(func() { k.env.Control.Abort(code, why) })
	panic(&AbortError{code, why})
}

// Stats counts what the rank has done so far.
func (w *World) Stats() Stats {
	k := w.k
	k.lock()
	s := Stats{P2P: k.p2p.Stats, Window: k.windows.Stats, NeverReceived: k.neverReceived, Carrier: k.carrier.Stats()}
	k.unlock()
	return s
}

// Forget says that memory is about to be freed, or to be used for something else: when
// it returns, nothing of it is registered. Nothing may be under way with it. Memory that
// the collector frees need not be forgotten: what is registered stays alive, and is let
// go of when there is no room for it.
func (w *World) Invalidate(buf []byte) error {
	if err := w.check(); err != nil {
		return w.raise("Forget", err)
	}
	w.k.lock()
	err := w.k.carrier.Invalidate(buf)
	if err == nil { // packets of the past may still ask for it
		w.k.waitUntil(func() bool { return w.k.carrier.Invalidated(buf) })
	}
	w.k.unlock()
	return w.raise("Forget", err)
}
