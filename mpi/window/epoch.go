package window

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// admits says why an operation on a rank's part cannot be begun now. Those with a
// request need a lock.
func (w *Window) admits(rank int, request bool) error {
	switch {
	case w.access == none:
		return fmt.Errorf("%w: no epoch is open: call Fence, Start or Lock first", ErrSync)
	case w.access == started && !slices.Contains(w.group, rank):
		return fmt.Errorf("%w: rank %d is not in the group %v of Start", ErrSync, rank, w.group)
	case w.access == locked && w.targets[rank].lock != held:
		return fmt.Errorf("%w: the window of rank %d is not locked", ErrSync, rank)
	case request && w.access != locked && w.access != lockedAll:
		return fmt.Errorf("%w: operations with requests need a lock", ErrSync)
	}
	return nil
}

// ready reports whether operations on a target can go at once, and has it asked if
// not.
func (w *Window) ready(t *target) bool {
	switch w.access {
	case started:
		return t.open
	case lockedAll:
		if t.lock == unlocked {
			w.ask(t, Shared, w.noCheck)
		}
		return t.lock == held
	}
	return true
}

// release has the operations go that waited for a target.
func (w *Window) release(t *target) {
	waiting := t.waiting
	t.waiting = nil
	for _, o := range waiting {
		w.issue(o)
	}
}

// enter says why an epoch cannot be opened now. After a fence that nothing followed,
// any can.
func (w *Window) enter(call string) error {
	if w.access == none || w.access == fenced && !w.used {
		return nil // what is open to others is another matter
	}
	return fmt.Errorf("%s: %w", call, w.CheckNoEpoch())
}

// BeginFence says why there can be no fence now. When all is settled and all ranks
// have met, EndFence opens the next epoch.
func (w *Window) CheckFence() error {
	if w.access == none || w.access == fenced {
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
	w.untouch()
	w.access, w.used = fenced, false
	if a&NoSucceed != 0 {
		w.access = none
	}
	return err
}

// Start opens an epoch for operations on the parts of a group. They go when the
// group's posts have come; with NoCheck, at once.
func (w *Window) Start(group []int, a Assert) error {
	if err := w.enter("Start"); err != nil {
		return err
	}
	w.access, w.group = started, slices.Clone(group)
	for _, i := range group {
		t := &w.targets[i]
		w.touch(i)
		switch {
		case a&NoCheck != 0:
			t.open = true
		case t.posts > 0:
			t.posts--
			t.open = true
		}
	}
	return nil
}

// postCame opens a part to our operations, now or when they are started.
func (w *Window) postCame(i int) {
	t := &w.targets[i]
	if w.access == started && !t.open && slices.Contains(w.group, i) {
		t.open = true
		w.release(t)
		return
	}
	t.posts++
}

// Completable reports whether the epoch that Start opened can be completed: the group
// has posted, and what was begun has left. A rank that is lost is not waited for.
func (w *Window) CanComplete() (bool, error) {
	if w.access != started {
		return false, fmt.Errorf("%w: Complete without Start", ErrSync)
	}
	for _, i := range w.group {
		if t := &w.targets[i]; t.lost == nil && !t.open || !w.LocalComplete(i) {
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
		t.open, t.unflushed = false, false
		w.e.word(t, &wire.Header{Kind: wire.Complete, Context: w.id})
	}
	err = errors.Join(err, w.TakeErrors())
	w.untouch()
	w.access, w.group = none, nil
	return err
}

// Post opens this rank's part to a group. With NoCheck its members know.
func (w *Window) Post(group []int, a Assert) error {
	if w.exposed {
		return fmt.Errorf("%w: Post after Post, without Wait between", ErrSync)
	}
	if w.access == fenced && w.used {
		return fmt.Errorf("Post: %w", w.CheckNoEpoch())
	}
	w.exposed, w.posted = true, slices.Clone(group)
	if w.access == fenced {
		w.access = none
	}
	if a&NoCheck == 0 {
		for _, i := range group {
			w.e.word(&w.targets[i], &wire.Header{Kind: wire.Post, Context: w.id})
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
	for _, i := range w.posted {
		if t := &w.targets[i]; t.completes == 0 && t.lost == nil {
			return false, nil
		}
	}
	var err error
	for _, i := range w.posted {
		if t := &w.targets[i]; t.completes > 0 {
			t.completes--
		} else {
			err = errors.Join(err, t.lost)
		}
	}
	w.exposed, w.posted = false, nil
	return true, err
}
