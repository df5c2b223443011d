// Package rig is a verbs application on a bench whose methods end the case when an
// expectation is not met. The body of a case is then a plain list of steps:
//
//	Run: rig.Body(func(r *rig.Rig) {
//		m := r.Memory(64, verbs.AccessLocalWrite)
//		…
//		r.ExpectCompletion(7, verbs.WCSuccess)
//	})
//
// The package does not use the wire; the suites have scripted peers for that. An error of
// a verb is a violation, since a case uses only features that the device claims. Use
// [Rig.MustFail] for calls that the device has to reject.
package rig

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Rig is an application on the device under test. Its objects are closed with the device.
type Rig struct {
	*conformance.Bench
	// PD and CQ are for cases that need only one of each.
	PD verbs.PD
	CQ verbs.CQ
}

const cqDepth = 1024

// Body returns the body of a conformance case, which calls a function with a new Rig, an
// application on the device under test. Its error is that with which the function ended the case.
//
// It is not inlined: inlined into the table of cases, it makes the compiler take three times as
// long for a package.
//
//go:noinline
func Body(body func(*Rig)) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		return Catch(func() { body(New(b)) })
	}
}

// New returns a Rig: an application on the device of b, with a protection domain and a completion
// queue. New and the methods of a Rig end the case by a panic if a verb fails, so they must be
// called within [Body] or [Catch], which recover it.
func New(b *conformance.Bench) *Rig {
	r := &Rig{Bench: b}
	r.PD = Result(b.Device.AllocPD())(r, "a protection domain")
	r.CQ = r.CreateCQ(verbs.CQInit{Depth: cqDepth})
	return r
}

// CreateCQ creates a completion queue, or fails the case.
func (r *Rig) CreateCQ(init verbs.CQInit) verbs.CQ {
	return Result(r.Device.CreateCQ(init))(r, "a completion queue")
}

// CreateQP creates a queue pair, or fails the case.
func (r *Rig) CreateQP(init verbs.QPInit) verbs.QP {
	return Result(r.Device.CreateQP(init))(r, fmt.Sprintf("a queue pair of %v", init.Type))
}

// CreateSRQ creates a shared receive queue, or fails the case.
func (r *Rig) CreateSRQ(init verbs.SRQInit) verbs.SRQ {
	return Result(r.Device.CreateSRQ(init))(r, "a shared receive queue")
}

// abort is the panic value that ends a case.
type abort struct{ err error }

// Catch calls f and returns the error with which f calls [Abort], or nil if f returns.
func Catch(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case abort:
			err = v.err
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// Abort ends the case with err, by a panic that [Catch] recovers. err is a
// [*conformance.Violation] if the device is at fault.
func Abort(err error) { panic(abort{err}) }

// Fail ends the case with a violation: want was expected, format and args say what was observed.
func (r *Rig) Fail(want, format string, args ...any) {
	Abort(conformance.Violatedf(want, format, args...))
}

// Check ends the case with a violation, as Fail does, unless ok.
func (r *Rig) Check(ok bool, want, format string, args ...any) {
	if !ok {
		r.Fail(want, format, args...)
	}
}

// Must ends the case if a verb returned an error: with that error if it is ErrNotSupported,
// ErrBenchCannot or a violation, else with a violation. want is the expected result.
func (r *Rig) Must(want string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, verbs.ErrNotSupported), errors.Is(err, conformance.ErrBenchCannot), conformance.IsViolation(err):
		Abort(fmt.Errorf("%s: %w", want, err))
	default:
		r.Fail(want, "%v", err)
	}
}

// Result returns a function that returns the result of a verb, or ends the case, like [Rig.Must],
// if the verb failed. Its argument r is a Rig, or a type that embeds one:
//
//	ah := rig.Result(r.PD.CreateAH(attr))(r, "an address handle")
func Result[A any](a A, err error) func(r interface{ Must(string, error) }, want string) A {
	return func(r interface{ Must(string, error) }, want string) A {
		r.Must(want, err)
		return a
	}
}

// MustFail fails the case unless a verb returned an error, which must match reason if
// that is not nil. call describes the verb call.
func (r *Rig) MustFail(call string, err, reason error) {
	switch {
	case err == nil:
		r.Fail(call+" is refused", "it succeeds")
	case reason != nil && !errors.Is(err, reason):
		r.Fail(fmt.Sprintf("%s is refused with %q", call, reason), "%v", err)
	}
}

// SilencePeriod is how long a case waits, in virtual time, to show that nothing is sent.
const SilencePeriod = time.Second

// Data returns n bytes of payload: a [Pattern] with a fixed first byte.
func Data(n int) []byte { return Pattern(n, 0x5a) }

// BenchCannot ends the case as unsupported, because the bench cannot test it for this reason.
func BenchCannot(format string, args ...any) {
	Abort(fmt.Errorf("%w: %s", conformance.ErrBenchCannot, fmt.Sprintf(format, args...)))
}

// NotApplicable ends the case as unsupported: the clause does not apply to this device, which
// need not have the feature, or to this bench.
func NotApplicable(why string) { Abort(&conformance.SetupError{Reason: why}) }
