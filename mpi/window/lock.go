package window

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// lockState is how far we are with the lock of a target.
type lockState uint8

const (
	unlocked lockState = iota
	asked
	held
)

// Lock asks for the lock of a rank's part. It is ours when Held says so; with
// NoCheck, at once.
func (w *Window) Lock(kind LockKind, rank int, a Assert) error {
	t := &w.targets[rank]
	switch {
	case kind != Shared && kind != Exclusive:
		return fmt.Errorf("%w: there is no lock of kind %d", ErrArg, kind)
	case w.access == locked && t.lock != unlocked:
		return fmt.Errorf("%w: the window of rank %d is locked already", ErrSync, rank)
	case w.access != locked:
		if err := w.enter("Lock"); err != nil {
			return err
		}
	}
	w.access = locked
	w.locks++
	w.touch(rank)
	w.ask(t, kind, a&NoCheck != 0)
	return nil
}

// ask asks for a lock, or takes it where nobody else will.
func (w *Window) ask(t *target, kind LockKind, noCheck bool) {
	t.lock, t.kind = asked, kind
	if noCheck {
		t.lock = held
		t.kind = unchecked
		return
	}
	h := wire.Header{Kind: wire.Lock, Context: w.id}
	if kind == Exclusive {
		h.Flags = wire.Exclusive
	}
	w.e.word(t, &h)
}

// unchecked is the kind of a lock that its target knows nothing of.
const unchecked LockKind = 0xff

// Held reports whether a lock that was asked for is ours, or why it never will be;
// then it is asked for no more.
func (w *Window) TestLock(rank int) (bool, error) {
	t := &w.targets[rank]
	if t.lock == asked && t.lost != nil {
		err := t.lost
		w.leave(t)
		return false, err
	}
	return t.lock == held, nil
}

// Unlockable says why a rank's part cannot be unlocked.
func (w *Window) CheckUnlock(rank int) error {
	if w.access != locked || w.targets[rank].lock == unlocked {
		return fmt.Errorf("%w: the window of rank %d is not locked by Lock", ErrSync, rank)
	}
	return nil
}

// Unlock gives a lock back, when all is settled. It returns what operations failed
// with.
func (w *Window) Unlock(rank int) error {
	t := &w.targets[rank]
	err := w.TakeError(rank)
	if err == nil {
		err = t.lost
	}
	w.leave(t)
	return err
}

// leave gives back the lock of a single target.
func (w *Window) leave(t *target) {
	w.giveBack(t)
	if w.locks--; w.locks == 0 {
		w.access = none
		w.untouch()
	}
}

// giveBack gives a lock back.
func (w *Window) giveBack(t *target) {
	if t.lock == held && t.kind != unchecked {
		w.e.word(t, &wire.Header{Kind: wire.Unlock, Context: w.id})
	}
	t.lock = unlocked
}

// LockAll opens an epoch for operations on all parts. The lock of each is asked for
// when it is needed first: most programs that lock all use few.
func (w *Window) LockAll(a Assert) error {
	if err := w.enter("LockAll"); err != nil {
		return err
	}
	w.access, w.noCheck = lockedAll, a&NoCheck != 0
	return nil
}

// UnlockableAll says why UnlockAll cannot be called.
func (w *Window) CheckUnlockAll() error {
	if w.access != lockedAll {
		return fmt.Errorf("%w: UnlockAll without LockAll", ErrSync)
	}
	return nil
}

// UnlockAll ends the epoch, when all is settled.
func (w *Window) UnlockAll() error {
	err := w.TakeErrors()
	for _, i := range w.touched {
		w.giveBack(&w.targets[i])
	}
	w.untouch()
	w.access = none
	return err
}

// Flushable says why operations on a rank's part cannot be flushed. All ranks are
// those with a lock.
func (w *Window) CheckFlush(rank int) error {
	if w.access == lockedAll || w.access == locked && w.targets[rank].lock == held {
		return nil
	}
	return fmt.Errorf("%w: the window of rank %d is not locked", ErrSync, rank)
}

// FlushableAll says why nothing can be flushed.
func (w *Window) CheckFlushAll() error {
	if w.access == lockedAll || w.access == locked {
		return nil
	}
	return fmt.Errorf("%w: nothing is locked", ErrSync)
}

// grantCame says that a lock is ours.
func (w *Window) grantCame(t *target, h *wire.Header) error {
	if t.lock != asked {
		return confused(t.peer, h, "nobody has asked")
	}
	t.lock = held
	w.release(t)
	return nil
}

// claim is one for the lock of our part.
type claim struct {
	peer int
	kind LockKind
}

// lockCame takes a claim. Claims are granted in their order, so that nobody waits for
// ever: who asks for a shared lock waits behind who asked for an exclusive one.
func (w *Window) lockCame(t *target, h *wire.Header) error {
	if _, has := w.held[t.peer]; has || slices.ContainsFunc(w.queue, func(c claim) bool { return c.peer == t.peer }) {
		return confused(t.peer, h, "it has a lock or waits for one")
	}
	c := claim{peer: t.peer, kind: Shared}
	if h.Flags&wire.Exclusive != 0 {
		c.kind = Exclusive
	}
	w.queue = append(w.queue, c)
	if w.grant(); len(w.queue) > 0 {
		w.e.Stats.LocksWaited++
	}
	return nil
}

// grant gives the lock to those who are next, as many as can have it.
func (w *Window) grant() {
	for len(w.queue) > 0 {
		c := w.queue[0]
		if len(w.held) > 0 && (c.kind == Exclusive || w.shared == 0) {
			return
		}
		w.queue = w.queue[1:]
		w.held[c.peer] = c.kind
		if c.kind == Shared {
			w.shared++
		}
		w.e.word(&w.targets[w.index[c.peer]], &wire.Header{Kind: wire.Granted, Context: w.id})
	}
}

// unlockCame takes a lock back.
func (w *Window) unlockCame(t *target, h *wire.Header) error {
	if _, has := w.held[t.peer]; !has {
		return confused(t.peer, h, "it has no lock")
	}
	w.unhold(t.peer)
	return nil
}

func (w *Window) unhold(peer int) {
	if w.held[peer] == Shared {
		w.shared--
	}
	delete(w.held, peer)
	w.grant()
}

// forfeit takes from a peer that is lost what it had of our lock.
func (w *Window) forfeit(t *target) {
	w.queue = slices.DeleteFunc(w.queue, func(c claim) bool { return c.peer == t.peer })
	if _, has := w.held[t.peer]; has {
		w.unhold(t.peer)
		return
	}
	w.grant()
}
