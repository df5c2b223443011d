package rig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// ExpectEvent waits for the next asynchronous event that is not of an ignored type, and fails
// the case unless it is of the type want. It returns the event.
func (r *Rig) ExpectEvent(want verbs.AsyncEventType, ignored ...verbs.AsyncEventType) verbs.AsyncEvent {
	for {
		e, err := r.Device.WaitAsync(r.ResponseTimeout())
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			r.Fail(fmt.Sprintf("the event %v", want), "none in %v", r.ResponseTimeout())
		case err != nil:
			r.Must("events", err)
		}
		r.Note("event %v", e.Type)
		switch {
		case e.Type == want:
			return e
		case !slices.Contains(ignored, e.Type):
			r.Fail(fmt.Sprintf("the event %v", want), "%v", e.Type)
		}
	}
}

// ExpectNoEvent fails the case if an asynchronous event is pending.
func (r *Rig) ExpectNoEvent() {
	e, err := r.Device.WaitAsync(0)
	switch {
	case err == nil:
		r.Fail("no event", "%v", e.Type)
	case !errors.Is(err, verbs.ErrTimeout):
		r.Must("events", err)
	}
}

// Counter returns the value of a counter of the device; false if the device does not have it.
func (r *Rig) Counter(name string) (uint64, bool) {
	for _, c := range r.Device.Counters() {
		if c.Name == name {
			return c.Value, true
		}
	}
	return 0, false
}
