package window

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// lockState is how far we are with the lock of a target.
type lockState uint8

const (
	lockNone lockState = iota
	lockRequested
	lockHeld
)

// Lock asks for the lock of a rank's part. It is ours when Held says so; with
// NoCheck, at once.
func (w *Window) Lock(kind LockKind, rank int, a Assert) error {
	t := &w.targets[rank]
	switch {
	case kind != Shared && kind != Exclusive:
		return fmt.Errorf("%w: there is no lock of kind %d", ErrArg, kind)
	case w.access == lockEpoch && t.lock != lockNone:
		return fmt.Errorf("%w: the window of rank %d is locked already", ErrSync, rank)
	case w.access != lockEpoch:
		if err := w.checkNewEpoch("Lock"); err != nil {
			return err
		}
	}
	w.access = lockEpoch
	w.locks++
	w.markUsed(rank)
	w.requestLock(t, kind, a&NoCheck != 0)
	return nil
}

// ask asks for a lock, or takes it where nobody else will.
func (w *Window) requestLock(t *target, kind LockKind, noCheck bool) {
	t.lock, t.lockKind = lockRequested, kind
	if noCheck {
		t.lock = lockHeld
		t.lockKind = uncheckedLock
		return
	}
	h := wire.Header{Kind: wire.Lock, Context: w.id}
	if kind == Exclusive {
		h.Flags = wire.Exclusive
	}
	w.e.sendControl(t, &h)
}

// unchecked is the kind of a lock that its target knows nothing of.
const uncheckedLock LockKind = 0xff

// Held reports whether a lock that was asked for is ours, or why it never will be;
// then it is asked for no more.
func (w *Window) TestLock(rank int) (bool, error) {
	t := &w.targets[rank]
	if t.lock == lockRequested && t.lost != nil {
		err := t.lost
		w.unlockTarget(t)
		return false, err
	}
	return t.lock == lockHeld, nil
}

// Unlockable says why a rank's part cannot be unlocked.
func (w *Window) CheckUnlock(rank int) error {
	if w.access != lockEpoch || w.targets[rank].lock == lockNone {
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
	w.unlockTarget(t)
	return err
}

// leave gives back the lock of a single target.
func (w *Window) unlockTarget(t *target) {
	w.releaseLock(t)
	if w.locks--; w.locks == 0 {
		w.access = noEpoch
		w.clearUsed()
	}
}

// giveBack gives a lock back.
func (w *Window) releaseLock(t *target) {
	if t.lock == lockHeld && t.lockKind != uncheckedLock {
		w.e.sendControl(t, &wire.Header{Kind: wire.Unlock, Context: w.id})
	}
	t.lock = lockNone
}

// LockAll opens an epoch for operations on all parts. The lock of each is asked for
// when it is needed first: most programs that lock all use few.
func (w *Window) LockAll(a Assert) error {
	if err := w.checkNewEpoch("LockAll"); err != nil {
		return err
	}
	w.access, w.noCheck = lockAllEpoch, a&NoCheck != 0
	return nil
}

// UnlockableAll says why UnlockAll cannot be called.
func (w *Window) CheckUnlockAll() error {
	if w.access != lockAllEpoch {
		return fmt.Errorf("%w: UnlockAll without LockAll", ErrSync)
	}
	return nil
}

// UnlockAll ends the epoch, when all is settled.
func (w *Window) UnlockAll() error {
	err := w.TakeErrors()
	for _, i := range w.usedTargets {
		w.releaseLock(&w.targets[i])
	}
	w.clearUsed()
	w.access = noEpoch
	return err
}

// Flushable says why operations on a rank's part cannot be flushed. All ranks are
// those with a lock.
func (w *Window) CheckFlush(rank int) error {
	if w.access == lockAllEpoch || w.access == lockEpoch && w.targets[rank].lock == lockHeld {
		return nil
	}
	return fmt.Errorf("%w: the window of rank %d is not locked", ErrSync, rank)
}

// FlushableAll says why nothing can be flushed.
func (w *Window) CheckFlushAll() error {
	if w.access == lockAllEpoch || w.access == lockEpoch {
		return nil
	}
	return fmt.Errorf("%w: nothing is locked", ErrSync)
}

// grantCame says that a lock is ours.
func (w *Window) handleGranted(t *target, h *wire.Header) error {
	if t.lock != lockRequested {
		return protocolError(t.peer, h, "nobody has asked")
	}
	t.lock = lockHeld
	w.issueWaiting(t)
	return nil
}

// claim is one for the lock of our part.
type lockRequest struct {
	peer int
	kind LockKind
}

// lockCame takes a claim. Claims are granted in their order, so that nobody waits for
// ever: who asks for a shared lock waits behind who asked for an exclusive one.
func (w *Window) handleLock(t *target, h *wire.Header) error {
	if _, has := w.holders[t.peer]; has || slices.ContainsFunc(w.lockQueue, func(c lockRequest) bool { return c.peer == t.peer }) {
		return protocolError(t.peer, h, "it has a lock or waits for one")
	}
	c := lockRequest{peer: t.peer, kind: Shared}
	if h.Flags&wire.Exclusive != 0 {
		c.kind = Exclusive
	}
	w.lockQueue = append(w.lockQueue, c)
	if w.grant(); len(w.lockQueue) > 0 {
		w.e.Stats.LocksWaited++
	}
	return nil
}

// grant gives the lock to those who are next, as many as can have it.
func (w *Window) grant() {
	for len(w.lockQueue) > 0 {
		c := w.lockQueue[0]
		if len(w.holders) > 0 && (c.kind == Exclusive || w.sharedHolders == 0) {
			return
		}
		w.lockQueue = w.lockQueue[1:]
		w.holders[c.peer] = c.kind
		if c.kind == Shared {
			w.sharedHolders++
		}
		w.e.sendControl(&w.targets[w.index[c.peer]], &wire.Header{Kind: wire.Granted, Context: w.id})
	}
}

// unlockCame takes a lock back.
func (w *Window) handleUnlock(t *target, h *wire.Header) error {
	if _, has := w.holders[t.peer]; !has {
		return protocolError(t.peer, h, "it has no lock")
	}
	w.removeHolder(t.peer)
	return nil
}

func (w *Window) removeHolder(peer int) {
	if w.holders[peer] == Shared {
		w.sharedHolders--
	}
	delete(w.holders, peer)
	w.grant()
}

// forfeit takes from a peer that is lost what it had of our lock.
func (w *Window) releaseLockOf(t *target) {
	w.lockQueue = slices.DeleteFunc(w.lockQueue, func(c lockRequest) bool { return c.peer == t.peer })
	if _, has := w.holders[t.peer]; has {
		w.removeHolder(t.peer)
		return
	}
	w.grant()
}
