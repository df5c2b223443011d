package verbcalls

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/verbs"
)

// handle is what all handles of ours have in common.
type handle struct {
	d     *device
	asked atomic.Bool // CloseLeavesWaiting: to close
}

func (h *handle) owner() *device { return h.d }

// answers is what a verb of the handle returns for an error of the sound one's: by
// ClosedAnswers none for being closed.
func (h *handle) answers(err error) error {
	if h.d.q.ClosedAnswers && errors.Is(err, verbs.ErrClosed) {
		return nil
	}
	return err
}

// close closes the sound handle by its Close. That something uses it is no error by
// BusyClosed, and it stays then; nor by ClosesTwice that it was closed before.
func (h *handle) close(sound interface{ Close() error }) error {
	err := sound.Close()
	switch {
	case err == nil:
		h.d.drop(sound)
	case h.d.q.BusyClosed && errors.Is(err, verbs.ErrBusy), h.d.q.ClosesTwice && errors.Is(err, verbs.ErrClosed):
		return nil
	}
	return err
}

// leftOpen reports whether a handle that calls wait at stays open, by
// CloseLeavesWaiting when it is closed for the first time.
func (h *handle) leftOpen() bool { return h.d.q.CloseLeavesWaiting && !h.asked.Swap(true) }

// mostEver is how many objects of a kind there can be in the life of a device that
// does not notice when they go.
const mostEver = 512

// makes makes an object of a kind, unless by ClosedCount there have been too many.
func makes[T any](d *device, kind string, sound func() (T, error)) (x T, err error) {
	d.mu.Lock()
	used := d.ever[kind]
	d.mu.Unlock()
	if d.q.ClosedCount && used >= mostEver {
		return x, fmt.Errorf("%w: %d %s", verbs.ErrNoMemory, used, kind)
	}
	if x, err = sound(); err != nil {
		return x, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ever[kind]++
	return x, nil
}

// refused is the error of a verb that defects refuse.
func refused(op string, kind error, why string) error {
	return &verbs.OpError{Op: op, Err: fmt.Errorf("%w: %s", kind, why)}
}

// notTheDevices is the error of what is claimed and refused.
func notTheDevices(op string) error {
	return refused(op, verbs.ErrNotSupported, "in spite of the claim")
}
