package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Verdict is the result of a case for a device.
type Verdict string

const (
	// VerdictPass means that the requirement is met.
	VerdictPass Verdict = "pass"
	// VerdictFail means that the requirement is not met, or the device rejects a feature it claims.
	VerdictFail Verdict = "fail"
	// VerdictUnsupported means that the device does not claim the feature, or the bench cannot test
	// it.
	VerdictUnsupported Verdict = "unsupported"
	// VerdictDeviates means that the requirement is not met, and a deviation is on record.
	VerdictDeviates Verdict = "deviates"
	// VerdictStale means that the requirement is met although a deviation is on record.
	VerdictStale Verdict = "stale"
	// VerdictBroken means that the case could not be run, and says nothing about the device.
	VerdictBroken Verdict = "broken"
	// VerdictStarved means that the case failed in each attempt while other processes used most of
	// the CPU time, which says nothing about the device.
	VerdictStarved Verdict = "starved"
)

// Acceptable reports whether the verdict needs no action.
func (v Verdict) Acceptable() bool {
	return v == VerdictPass || v == VerdictUnsupported || v == VerdictDeviates
}

// Lab makes benches.
type Lab interface {
	// WithBench makes a bench, runs the body on it, and closes the bench. It returns the
	// error of the body, or its own: a *SetupError if the device rejects the setup, a
	// *HangError if the case did not finish.
	WithBench(ctx context.Context, spec BenchSpec, body func(*Bench) error) error
}

// BenchSpec describes the bench that a case needs.
type BenchSpec struct {
	// Case is the case's ID, used in names.
	Case  string
	Setup Setup
	// Defects are the defects of the device.
	Defects []string
	Seed    uint64
	Record  *Record
}

// HangError reports that a case did not finish.
type HangError struct{ Waiting string }

func (e *HangError) Error() string { return "the case did not finish: " + e.Waiting }

// CrashError reports that the device's host crashed during a case. It is a failure of a
// [Dangerous] case. During any other case the cause may be an earlier case, and the
// verdict is broken.
type CrashError struct{ Cause error }

func (e *CrashError) Error() string {
	return "the device's host crashed during the case: " + e.Cause.Error()
}

func (e *CrashError) Unwrap() error { return e.Cause }

// Options are the options of [Judge].
type Options struct {
	Defects []string
	Seed    uint64
	// Deviations are the known deviations of the device, by case ID.
	Deviations map[string]Deviation
	// Schedules is the number of schedules that a case explores; 0 for the case's
	// default. Progress, if not nil, is called by the case's goroutine.
	Schedules int
	Progress  func(c *Case, done, total int)
}

// Deviation is a known violation of a device.
type Deviation struct {
	// Reason explains it to readers.
	Reason string
	// Intermittent reports that the violation occurs at random. A pass is then no sign
	// that the deviation is stale.
	Intermittent bool
}

// Result is the outcome of a case.
type Result struct {
	Case    *Case
	Verdict Verdict
	// Err is the violation or error, or the reason of an unsupported case; nil for a pass.
	Err error
	// Deviation is the reason of the deviation, if the verdict is deviates or stale.
	Deviation string
	Defects   []string
	// Took is the real time that the case took.
	Took   time.Duration
	Record *Record
}

// Judge runs a case on a bench of the lab, with the device and a scripted peer, and returns its
// result. The verdict is unsupported only if the device does not claim a capability or setup of the
// case, or the bench cannot test it. A device that rejects a claimed feature fails the case.
func Judge(ctx context.Context, lab Lab, c *Case, opt Options) Result {
	res := Result{Case: c, Defects: opt.Defects, Record: new(Record)}
	spec := BenchSpec{Case: c.ID, Setup: c.Setup, Defects: opt.Defects, Seed: opt.Seed, Record: res.Record}
	begun := time.Now()
	benchOpened := false
	err := lab.WithBench(ctx, spec, func(b *Bench) error {
		benchOpened = true
		if missing := c.Needs &^ b.Caps; missing != 0 {
			return &UnclaimedError{CapNames(missing)}
		}
		if !b.Virtual { // in virtual time, calls take no time and the timeouts are fixed
			b.measureCalls()
		}
		b.schedules = opt.Schedules // how many orders of concurrent events the case explores
		if opt.Progress != nil {
			b.progress = func(done, total int) { opt.Progress(c, done, total) }
		}
		return c.Run(b)
	})
	if rejection := new(SetupError); !benchOpened && errors.As(err, &rejection) {
		err = explainRejection(ctx, lab, spec, rejection)
	}
	res.Took = time.Since(begun)
	// In a case that is not dangerous, an earlier one may have caused the crash: the verdict is broken.
	if c.Dangerous() && errors.As(err, new(*CrashError)) {
		err = Violated("a device that is alive", err.Error())
	}
	deviation, isKnown := opt.Deviations[c.ID]
	res.Verdict, res.Err = verdict(err, isKnown, deviation.Intermittent)
	switch res.Verdict {
	case VerdictDeviates:
		res.Deviation = deviation.Reason
	case VerdictStale:
		res.Deviation = deviation.Reason
		res.Err = fmt.Errorf("%s passes: delete its deviation (%s)", c.ID, deviation.Reason)
	}
	return res
}

// verdict maps the error of a case to a verdict, and returns the error for the report. hasDeviation
// means that the device is known to fail the case. If the case passes, the deviation is stale,
// unless it is intermittent (the case fails at random).
func verdict(err error, hasDeviation, intermittent bool) (Verdict, error) {
	failed := VerdictFail
	if hasDeviation {
		failed = VerdictDeviates
	}
	switch {
	case err == nil && hasDeviation && !intermittent:
		return VerdictStale, nil
	case err == nil:
		return VerdictPass, nil
	case IsViolation(err): // even if the bench could not be cleaned up after it
		return failed, err
	case errors.As(err, new(*UnclaimedError)), errors.As(err, new(*SetupError)), errors.Is(err, ErrBenchCannot):
		return VerdictUnsupported, err
	case errors.Is(err, verbs.ErrNotSupported):
		return failed, fmt.Errorf("the device claims the capability and rejects the call: %w", err)
	default:
		return VerdictBroken, err
	}
}

// Violation reports that a device does not meet a requirement.
type Violation struct { //nolint:errname // it is a verdict that happens to be an error
	// Want is the required behaviour, Got the observed behaviour.
	Want, Got string
}

func (v *Violation) Error() string { return "want " + v.Want + ", got " + v.Got }

// Violated returns a [*Violation].
func Violated(want, got string) error { return &Violation{want, got} }

// Violatedf returns a [*Violation], and formats the observed behaviour.
func Violatedf(want, format string, args ...any) error {
	return &Violation{want, fmt.Sprintf(format, args...)}
}

// IsViolation reports whether err is, or wraps, a [*Violation].
func IsViolation(err error) bool {
	var v *Violation
	return errors.As(err, &v)
}

// ErrBenchCannot is returned by a wire that cannot send a packet, or a bench that lacks a
// function. The verdict is then unsupported. Wrap it with the reason.
var ErrBenchCannot = errors.New("cannot be done on this bench")
