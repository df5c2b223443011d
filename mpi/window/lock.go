package window

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// lockState is the state of this origin's lock on a target.
type lockState uint8

const (
	lockNone lockState = iota
	lockRequested
	lockHeld
)

// Lock requests the lock of a rank's window. TestLock reports when it is held; with
// NoCheck it is held at once.
func (w *Window) Lock(kind LockKind, rank int, a Assert) error {
	t := &w.targets[rank]
	switch {
	case kind != Shared && kind != Exclusive:
		return fmt.Errorf("%w: unknown lock kind %d", ErrArg, kind)
	case w.access.kind == lockEpoch && t.lock != lockNone:
		return fmt.Errorf("%w: the window of rank %d is already locked", ErrSync, rank)
	case w.access.kind != lockEpoch:
		if err := w.checkNewEpoch("Lock"); err != nil {
			return err
		}
	}
	w.access.kind = lockEpoch
	w.access.locks++
	w.access.markUsed(rank)
	w.requestLock(t, kind, a&NoCheck != 0)
	return nil
}

// requestLock sends a lock request, or takes the lock at once with noCheck.
func (w *Window) requestLock(t *target, kind LockKind, noCheck bool) {
	if noCheck {
		t.lock, t.lockKind = lockHeld, uncheckedLock
		return
	}
	t.lock, t.lockKind = lockRequested, kind
	h := wire.Header{Kind: wire.Lock}
	if kind == Exclusive {
		h.Flags = wire.Exclusive
	}
	w.sendControl(t, h)
}

// uncheckedLock is the kind of a lock taken with NoCheck, which the target does not know of.
const uncheckedLock LockKind = 0xff

// TestLock reports whether a requested lock is held. If the target is lost it withdraws
// the request and returns the error.
func (w *Window) TestLock(rank int) (bool, error) {
	t := &w.targets[rank]
	if t.lock == lockRequested && t.lost != nil {
		err := t.lost
		w.unlockTarget(t)
		return false, err
	}
	return t.lock == lockHeld, nil
}

// CheckUnlock returns an error if Unlock is not allowed.
func (w *Window) CheckUnlock(rank int) error {
	if w.access.kind != lockEpoch || w.targets[rank].lock == lockNone {
		return fmt.Errorf("%w: the window of rank %d is not locked by Lock", ErrSync, rank)
	}
	return nil
}

// Unlock releases the lock of a rank's window. It returns the first error of the operations on it;
// without one, an ErrLost if the rank is lost. The caller has waited for RemoteComplete.
func (w *Window) Unlock(rank int) error {
	t := &w.targets[rank]
	err := cmp.Or(w.TakeError(rank), t.lost)
	w.unlockTarget(t)
	return err
}

// unlockTarget releases the lock of one target, and closes the epoch with the last lock.
func (w *Window) unlockTarget(t *target) {
	w.releaseLock(t)
	if w.access.locks--; w.access.locks == 0 {
		w.access.close()
	}
}

// releaseLock releases the lock on a target. It sends an Unlock only if the target has granted the
// lock: not for a request that is still pending, nor for a lock taken with NoCheck.
func (w *Window) releaseLock(t *target) {
	if t.lock == lockHeld && t.lockKind != uncheckedLock {
		w.sendControl(t, wire.Header{Kind: wire.Unlock})
	}
	t.lock = lockNone
}

// LockAll opens an access epoch to all ranks. Each lock is requested on first use, since
// most programs access few targets.
func (w *Window) LockAll(a Assert) error {
	if err := w.checkNewEpoch("LockAll"); err != nil {
		return err
	}
	w.access.kind, w.access.noCheck = lockAllEpoch, a&NoCheck != 0
	return nil
}

// CheckUnlockAll returns an error if UnlockAll is not allowed.
func (w *Window) CheckUnlockAll() error {
	if w.access.kind != lockAllEpoch {
		return fmt.Errorf("%w: UnlockAll without LockAll", ErrSync)
	}
	return nil
}

// UnlockAll closes the epoch and returns the errors of its operations. The caller has waited for
// AllRemoteComplete.
func (w *Window) UnlockAll() error {
	err := w.TakeErrors()
	for _, i := range w.access.used {
		w.releaseLock(&w.targets[i])
	}
	w.access.close()
	return err
}

// CheckFlush returns an error if operations on a rank's window cannot be flushed.
func (w *Window) CheckFlush(rank int) error {
	if w.access.kind == lockAllEpoch || w.access.kind == lockEpoch && w.targets[rank].lock == lockHeld {
		return nil
	}
	return fmt.Errorf("%w: the window of rank %d is not locked", ErrSync, rank)
}

// CheckFlushAll returns an error if no lock epoch is open.
func (w *Window) CheckFlushAll() error {
	if w.access.kind == lockAllEpoch || w.access.kind == lockEpoch {
		return nil
	}
	return fmt.Errorf("%w: no lock epoch is open", ErrSync)
}

// handleGranted records that the target has granted the lock, and issues the queued operations.
func (w *Window) handleGranted(t *target, h *wire.Header) error {
	if t.lock != lockRequested {
		return protocolError(t.Peer, h, "no lock was requested")
	}
	t.lock = lockHeld
	w.issueWaiting(t)
	return nil
}

// lockRequest is a peer's request for the local lock.
type lockRequest struct {
	peer int
	kind LockKind
}

// handleLock queues a peer's lock request, and grants it if possible. To prevent starvation,
// requests are granted in their order: a shared request waits behind an earlier exclusive one.
func (w *Window) handleLock(t *target, h *wire.Header) error {
	if _, has := w.lock.holders[t.Peer]; has || slices.ContainsFunc(w.lock.queue, func(r lockRequest) bool { return r.peer == t.Peer }) {
		return protocolError(t.Peer, h, "the peer already holds or waits for the lock")
	}
	request := lockRequest{peer: t.Peer, kind: Shared}
	if h.Flags&wire.Exclusive != 0 {
		request.kind = Exclusive
	}
	w.lock.queue = append(w.lock.queue, request)
	if w.grantLocks(); len(w.lock.queue) > 0 { // the new request, the last, was not granted
		w.e.Stats.LocksWaited++
	}
	return nil
}

// grantLocks grants the local lock to as many queued requests as possible, in order.
func (w *Window) grantLocks() {
	for len(w.lock.queue) > 0 {
		request := w.lock.queue[0]
		heldExclusively := len(w.lock.holders) > 0 && w.lock.shared == 0
		if heldExclusively || request.kind == Exclusive && len(w.lock.holders) > 0 {
			return
		}
		w.lock.queue = w.lock.queue[1:]
		w.lock.holders[request.peer] = request.kind
		if request.kind == Shared {
			w.lock.shared++
		}
		w.sendControl(&w.targets[w.index[request.peer]], wire.Header{Kind: wire.Granted})
	}
}

// removeHolder takes the local lock from a peer, if held, and grants the lock to queued requests.
func (w *Window) removeHolder(peer int) {
	if kind, has := w.lock.holders[peer]; has && kind == Shared {
		w.lock.shared--
	}
	delete(w.lock.holders, peer)
	w.grantLocks()
}
