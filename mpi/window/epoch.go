package window

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// checkAccess returns an error if the current epoch does not allow an operation on a
// rank's window. Operations with a request need a lock epoch.
func (w *Window) checkAccess(rank int, hasRequest bool) error {
	switch {
	case w.access.kind == noEpoch:
		return fmt.Errorf("%w: no access epoch is open: call Fence, Start or Lock first", ErrSync)
	case w.access.kind == startEpoch && !slices.Contains(w.access.group, rank):
		return fmt.Errorf("%w: rank %d is not in the group %v of Start", ErrSync, rank, w.access.group)
	case w.access.kind == lockEpoch && w.targets[rank].lock != lockHeld:
		return fmt.Errorf("%w: the window of rank %d is not locked", ErrSync, rank)
	case hasRequest && w.access.kind != lockEpoch && w.access.kind != lockAllEpoch:
		return fmt.Errorf("%w: operations with requests need a lock", ErrSync)
	}
	return nil
}

// prepareTarget reports whether operations on a target can be issued now. In a LockAll epoch it
// requests the lock on first use. In a fence or Lock epoch they always can: checkAccess has checked
// that the lock is held.
func (w *Window) prepareTarget(t *target) bool {
	switch w.access.kind {
	case startEpoch:
		return t.postReceived
	case lockAllEpoch:
		if t.lock == lockNone {
			w.requestLock(t, Shared, w.access.noCheck)
		}
		return t.lock == lockHeld
	}
	return true
}

// issueWaiting issues the operations that waited for a target.
func (w *Window) issueWaiting(t *target) {
	waiting := t.waiting
	t.waiting = nil
	for _, o := range waiting {
		w.issue(o)
	}
}

// checkNewEpoch returns an error, with the name of the call, if an access epoch cannot be
// opened now. A fence epoch without operations may be replaced by any epoch.
func (w *Window) checkNewEpoch(call string) error {
	if w.access.kind == noEpoch || w.access.kind == fenceEpoch && !w.access.fenceUsed {
		return nil
	}
	return fmt.Errorf("%s: %w", call, w.CheckNoEpoch()) // which names the open epoch
}

// CheckFence returns an error if Fence is not allowed now.
func (w *Window) CheckFence() error {
	if !w.exposed && (w.access.kind == noEpoch || w.access.kind == fenceEpoch) {
		return nil
	}
	return fmt.Errorf("Fence within another epoch: %w", w.CheckNoEpoch())
}

// Fence closes the fence epoch and opens the next, unless NoSucceed is given. It returns the errors
// of the closed epoch's operations. The caller has waited for AllRemoteComplete and a barrier.
func (w *Window) Fence(a Assert) error {
	err := w.TakeErrors()
	w.access.close()
	if a&NoSucceed == 0 {
		w.access.kind, w.access.fenceUsed = fenceEpoch, false
	}
	return err
}

// Start opens an access epoch to a group of ranks. Operations are issued when the target's post has
// arrived; with NoCheck, at once.
func (w *Window) Start(group []int, a Assert) error {
	if err := w.checkNewEpoch("Start"); err != nil {
		return err
	}
	w.access.kind, w.access.group = startEpoch, slices.Clone(group)
	for _, i := range group {
		t := &w.targets[i]
		w.access.markUsed(i)
		t.postReceived = a&NoCheck != 0
		if !t.postReceived && t.unusedPosts > 0 { // the post came before this Start
			t.unusedPosts--
			t.postReceived = true
		}
	}
	return nil
}

// handlePost records the Post of target i. If the open Start epoch waits for it, the waiting
// operations are issued; otherwise a later Start uses it.
func (w *Window) handlePost(i int) {
	t := &w.targets[i]
	if w.access.kind == startEpoch && !t.postReceived && slices.Contains(w.access.group, i) {
		t.postReceived = true
		w.issueWaiting(t)
		return
	}
	t.unusedPosts++
}

// CanComplete reports whether Complete can be called: the group has posted and all operations are
// locally complete. It does not wait for the post of a lost rank.
func (w *Window) CanComplete() (bool, error) {
	if w.access.kind != startEpoch {
		return false, fmt.Errorf("%w: Complete without Start", ErrSync)
	}
	for _, i := range w.access.group {
		t := &w.targets[i]
		awaitsPost := t.lost == nil && !t.postReceived
		if awaitsPost || !w.LocalComplete(i) {
			return false, nil
		}
	}
	return true, nil
}

// Complete closes the access epoch of Start, and returns the errors of its operations. It needs no
// flush, because its messages to the group arrive after those of the operations.
func (w *Window) Complete() (err error) {
	for _, i := range w.access.group {
		t := &w.targets[i]
		err = errors.Join(err, t.lost)
		t.postReceived, t.flush.needed = false, false
		w.sendControl(t, wire.Header{Kind: wire.Complete})
	}
	err = errors.Join(err, w.TakeErrors())
	w.access.close()
	return err
}

// Post opens an exposure epoch for a group of ranks, and notifies them unless NoCheck is given. It
// ends a fence epoch without operations; a fence epoch with operations is an error.
func (w *Window) Post(group []int, a Assert) error {
	if w.exposed {
		return fmt.Errorf("%w: Post after Post, without Wait between", ErrSync)
	}
	if w.access.kind == fenceEpoch && w.access.fenceUsed {
		return fmt.Errorf("Post: %w", w.CheckNoEpoch())
	}
	w.exposed, w.exposedTo = true, slices.Clone(group)
	if w.access.kind == fenceEpoch {
		w.access.kind = noEpoch
	}
	if a&NoCheck == 0 {
		for _, i := range group {
			w.sendControl(&w.targets[i], wire.Header{Kind: wire.Post})
		}
	}
	return nil
}

// Test closes the exposure epoch if the whole group has called Complete or is lost, and
// reports whether it is closed. The error names ranks that were lost before they completed.
func (w *Window) Test() (bool, error) {
	if !w.exposed {
		return false, fmt.Errorf("%w: Wait without Post", ErrSync)
	}
	for _, i := range w.exposedTo {
		if t := &w.targets[i]; t.unusedCompletes == 0 && t.lost == nil {
			return false, nil
		}
	}
	var err error
	for _, i := range w.exposedTo {
		if t := &w.targets[i]; t.unusedCompletes > 0 {
			t.unusedCompletes--
		} else {
			err = errors.Join(err, t.lost)
		}
	}
	w.exposed, w.exposedTo = false, nil
	return true, err
}
