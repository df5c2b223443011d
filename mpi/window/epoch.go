package window

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// admits says why an operation on a rank's part cannot be begun now. Those with a
// request need a lock.
func (w *Window) checkAccess(rank int, request bool) error {
	switch {
	case w.access == noEpoch:
		return fmt.Errorf("%w: no epoch is open: call Fence, Start or Lock first", ErrSync)
	case w.access == startEpoch && !slices.Contains(w.group, rank):
		return fmt.Errorf("%w: rank %d is not in the group %v of Start", ErrSync, rank, w.group)
	case w.access == lockEpoch && w.targets[rank].lock != lockHeld:
		return fmt.Errorf("%w: the window of rank %d is not locked", ErrSync, rank)
	case request && w.access != lockEpoch && w.access != lockAllEpoch:
		return fmt.Errorf("%w: operations with requests need a lock", ErrSync)
	}
	return nil
}

// ready reports whether operations on a target can go at once, and has it asked if
// not.
func (w *Window) targetReady(t *target) bool {
	switch w.access {
	case startEpoch:
		return t.postReceived
	case lockAllEpoch:
		if t.lock == lockNone {
			w.requestLock(t, Shared, w.noCheck)
		}
		return t.lock == lockHeld
	}
	return true
}

// release has the operations go that waited for a target.
func (w *Window) issueWaiting(t *target) {
	waiting := t.waiting
	t.waiting = nil
	for _, o := range waiting {
		w.issue(o)
	}
}

// enter says why an epoch cannot be opened now. After a fence that nothing followed,
// any can.
func (w *Window) checkNewEpoch(call string) error {
	if w.access == noEpoch || w.access == fenceEpoch && !w.fenceUsed {
		return nil // what is open to others is another matter
	}
	return fmt.Errorf("%s: %w", call, w.CheckNoEpoch())
}

// BeginFence says why there can be no fence now. When all is settled and all ranks
// have met, EndFence opens the next epoch.
func (w *Window) CheckFence() error {
	if w.access == noEpoch || w.access == fenceEpoch {
		if !w.exposed {
			return nil
		}
	}
	return fmt.Errorf("a fence within another epoch: %w", w.CheckNoEpoch())
}

// EndFence ends an epoch and opens another, unless nothing is to follow. It returns
// what operations failed with.
func (w *Window) Fence(a Assert) error {
	err := w.TakeErrors()
	w.clearUsed()
	w.access, w.fenceUsed = fenceEpoch, false
	if a&NoSucceed != 0 {
		w.access = noEpoch
	}
	return err
}

// Start opens an epoch for operations on the parts of a group. They go when the
// group's posts have come; with NoCheck, at once.
func (w *Window) Start(group []int, a Assert) error {
	if err := w.checkNewEpoch("Start"); err != nil {
		return err
	}
	w.access, w.group = startEpoch, slices.Clone(group)
	for _, i := range group {
		t := &w.targets[i]
		w.markUsed(i)
		switch {
		case a&NoCheck != 0:
			t.postReceived = true
		case t.unusedPosts > 0:
			t.unusedPosts--
			t.postReceived = true
		}
	}
	return nil
}

// postCame opens a part to our operations, now or when they are started.
func (w *Window) handlePost(i int) {
	t := &w.targets[i]
	if w.access == startEpoch && !t.postReceived && slices.Contains(w.group, i) {
		t.postReceived = true
		w.issueWaiting(t)
		return
	}
	t.unusedPosts++
}

// Completable reports whether the epoch that Start opened can be completed: the group
// has posted, and what was begun has left. A rank that is lost is not waited for.
func (w *Window) CanComplete() (bool, error) {
	if w.access != startEpoch {
		return false, fmt.Errorf("%w: Complete without Start", ErrSync)
	}
	for _, i := range w.group {
		if t := &w.targets[i]; t.lost == nil && !t.postReceived || !w.LocalComplete(i) {
			return false, nil
		}
	}
	return true, nil
}

// Complete ends the epoch. Words to the group arrive behind those of the operations.
func (w *Window) Complete() (err error) {
	for _, i := range w.group {
		t := &w.targets[i]
		if t.lost != nil {
			err = errors.Join(err, t.lost)
		}
		t.postReceived, t.unflushed = false, false
		w.e.sendControl(t, &wire.Header{Kind: wire.Complete, Context: w.id})
	}
	err = errors.Join(err, w.TakeErrors())
	w.clearUsed()
	w.access, w.group = noEpoch, nil
	return err
}

// Post opens this rank's part to a group. With NoCheck its members know.
func (w *Window) Post(group []int, a Assert) error {
	if w.exposed {
		return fmt.Errorf("%w: Post after Post, without Wait between", ErrSync)
	}
	if w.access == fenceEpoch && w.fenceUsed {
		return fmt.Errorf("Post: %w", w.CheckNoEpoch())
	}
	w.exposed, w.exposedTo = true, slices.Clone(group)
	if w.access == fenceEpoch {
		w.access = noEpoch
	}
	if a&NoCheck == 0 {
		for _, i := range group {
			w.e.sendControl(&w.targets[i], &wire.Header{Kind: wire.Post, Context: w.id})
		}
	}
	return nil
}

// Completed reports whether the group of Post is through, and if so ends its epoch,
// with an error if one of it is lost and had not completed.
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
