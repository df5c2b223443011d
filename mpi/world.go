package mpi

import (
	"fmt"
	"time"
)

// World is the argument of a rank's program: the communicator of all ranks, and functions
// of the rank itself.
type World struct {
	*Comm
}

// Self is the communicator that has only this rank.
func (w *World) Self() *Comm { return w.rank.self }

// Wtime is the time since an arbitrary start.
func (w *World) Wtime() time.Duration { return w.rank.env.Proc.Now() }

// Compute keeps the CPU busy for a duration. In mode Polling the rank makes no progress
// meanwhile.
func (w *World) Compute(d time.Duration) {
	w.rank.runUnlocked(func() { w.rank.env.Proc.Compute(d) })
}

// Abort terminates all ranks. It does not return.
func (w *World) Abort(code int, why string) { w.rank.abort(code, why) }

// AbortError is the error of the rank that called Abort.
type AbortError struct {
	Code int
	Why  string
}

func (e *AbortError) Error() string { return fmt.Sprintf("aborted with code %d: %s", e.Code, e.Why) }

// abort terminates all ranks, and panics in case the environment lets this rank continue.
func (k *rank) abort(code int, why string) {
	k.runUnlocked(func() { k.env.Control.Abort(code, why) })
	panic(&AbortError{code, why})
}

// Stats returns the current statistics of the rank.
func (w *World) Stats() Stats {
	k := w.rank
	k.lock()
	s := Stats{P2P: k.p2p.Stats, Window: k.windows.Stats, NeverReceived: k.neverReceived, Carrier: k.carrier.Stats()}
	k.unlock()
	return s
}

// Invalidate deregisters memory that the program is about to free or reuse for another
// purpose. No operation on it may be pending. Memory that the garbage collector manages
// needs no call: a registration keeps it alive until the cache evicts it.
func (w *World) Invalidate(buf []byte) error {
	if err := w.check(); err != nil {
		return w.raise("Invalidate", err)
	}
	w.rank.lock()
	err := w.rank.carrier.Invalidate(buf)
	if err == nil { // delayed packets may still access it
		w.rank.waitUntil(func() bool { return w.rank.carrier.Invalidated(buf) })
	}
	w.rank.unlock()
	return w.raise("Invalidate", err)
}
