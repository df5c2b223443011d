package model

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// VerbsObject is an object of a device: a protection domain, a queue pair and so on.
type VerbsObject struct {
	uses   []*VerbsObject // the objects that it was created with
	users  int            // the number of open objects that use it
	closed bool
}

// NewVerbsObject returns an object that uses others, or nil if a device must refuse to create it
// because one of them is closed. A refused creation leaves them unused.
func NewVerbsObject(uses ...*VerbsObject) *VerbsObject {
	if slices.ContainsFunc(uses, (*VerbsObject).Closed) {
		return nil
	}
	for _, u := range uses {
		u.users++
	}
	return &VerbsObject{uses: uses}
}

// Closed reports whether the object is closed.
func (o *VerbsObject) Closed() bool { return o.closed }

// CloseError returns the error that a device must return when the object is closed: ErrClosed for
// the second close, and ErrBusy while another object uses it.
func (o *VerbsObject) CloseError() error {
	switch {
	case o.closed:
		return verbs.ErrClosed
	case o.users > 0:
		return verbs.ErrBusy
	}
	return nil
}

// Close closes the object, or returns the error of CloseError.
func (o *VerbsObject) Close() error {
	if err := o.CloseError(); err != nil {
		return err
	}
	o.closed = true
	for _, u := range o.uses {
		u.users--
	}
	return nil
}
