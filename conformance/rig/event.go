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
		r.Check(!errors.Is(err, verbs.ErrTimeout), fmt.Sprintf("the event %v", want), "none in %v", r.ResponseTimeout())
		r.Must("events", err)
		r.Note("event %v", e.Type)
		if e.Type == want {
			return e
		}
		r.Check(slices.Contains(ignored, e.Type), fmt.Sprintf("the event %v", want), "%v", e.Type)
	}
}

// ExpectNoEvent fails the case if an asynchronous event is pending whose type is not ignored.
func (r *Rig) ExpectNoEvent(ignored ...verbs.AsyncEventType) {
	e, err := r.Device.WaitAsync(0)
	for err == nil && slices.Contains(ignored, e.Type) {
		e, err = r.Device.WaitAsync(0)
	}
	r.Check(err != nil, "no event", "%v", e.Type)
	if !errors.Is(err, verbs.ErrTimeout) {
		r.Must("events", err)
	}
}
