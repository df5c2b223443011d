// Package rig is a verbs application on a bench, for cases that are told in straight
// lines: what does not come out as it must ends the case, with what was wanted and
// what came instead, so that a body says only what happens.
//
//	Run: rig.Straight(func(r *rig.Rig) {
//		m := r.Memory(64, verbs.AccessLocalWrite)
//		…
//		r.Completes(7, verbs.WCSuccess)
//	})
//
// It knows no wire: the suites put their raw peers beside it. What a verb refuses
// counts as the device's violation, for a case asks only for what the device claims;
// [Rig.Refuses] is for what it has to refuse.
package rig

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Rig is an application on the device under test. The things that it makes are
// closed with the device.
type Rig struct {
	*conformance.Bench
	// PD and CQ are there for whoever needs no other.
	PD verbs.PD
	CQ verbs.CQ
}

// cqDepth is enough for any case.
const cqDepth = 1024

// Straight makes the body of a case from one that ends where a step fails.
func Straight(body func(*Rig)) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		return Caught(func() { body(New(b)) })
	}
}

// New returns a rig on the bench. It and its methods must be called within
// [Straight] or [Caught].
func New(b *conformance.Bench) *Rig {
	r := &Rig{Bench: b}
	var err error
	r.PD, err = b.Device.AllocPD()
	r.Do("a protection domain", err)
	r.CQ, err = b.Device.CreateCQ(verbs.CQInit{Depth: cqDepth})
	r.Do("a completion queue", err)
	return r
}

// ending is how a step ends its case.
type ending struct{ err error }

// Caught runs the steps and returns why they ended early.
func Caught(steps func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case ending:
			err = v.err
		default:
			panic(v)
		}
	}()
	steps()
	return nil
}

// End ends the case: with a [*conformance.Violation] if the device is at fault.
func End(err error) { panic(ending{err}) }

// Fail ends the case with a violation.
func (r *Rig) Fail(want, format string, args ...any) {
	End(conformance.Violatedf(want, format, args...))
}

// Check ends the case with a violation unless ok.
func (r *Rig) Check(ok bool, want, format string, args ...any) {
	if !ok {
		r.Fail(want, format, args...)
	}
}

// Do ends the case if a verb failed that had to succeed. The bench's own faults stay
// what they are.
func (r *Rig) Do(want string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, verbs.ErrNotSupported), errors.Is(err, conformance.ErrCannot), conformance.IsViolation(err):
		End(fmt.Errorf("%s: %w", want, err))
	default:
		r.Fail(want, "%v", err)
	}
}

// Refuses ends the case unless a verb was refused, and for this reason if one is
// named.
func (r *Rig) Refuses(what string, err, reason error) {
	switch {
	case err == nil:
		r.Fail(what+" is refused", "it succeeds")
	case reason != nil && !errors.Is(err, reason):
		r.Fail(fmt.Sprintf("%s is refused with %q", what, reason), "%v", err)
	}
}
