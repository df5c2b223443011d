package rig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Event ends the case unless the next asynchronous event is of this type. It returns
// the event. Those of the types beside it may come before.
func (r *Rig) Event(want verbs.AsyncEventType, beside ...verbs.AsyncEventType) verbs.AsyncEvent {
	for {
		e, err := r.Device.WaitAsync(r.Patience())
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			r.Fail(fmt.Sprintf("the event %v", want), "none in %v", r.Patience())
		case err != nil:
			r.Do("events", err)
		}
		r.Note("event %v", e.Type)
		switch {
		case e.Type == want:
			return e
		case !slices.Contains(beside, e.Type):
			r.Fail(fmt.Sprintf("the event %v", want), "%v", e.Type)
		}
	}
}

// NoEvent ends the case if there is an asynchronous event by now.
func (r *Rig) NoEvent() {
	e, err := r.Device.WaitAsync(0)
	switch {
	case err == nil:
		r.Fail("no event", "%v", e.Type)
	case !errors.Is(err, verbs.ErrTimeout):
		r.Do("events", err)
	}
}

// Counter returns a counter of the device, and whether it has it.
func (r *Rig) Counter(name string) (uint64, bool) {
	for _, c := range r.Device.Counters() {
		if c.Name == name {
			return c.Value, true
		}
	}
	return 0, false
}
