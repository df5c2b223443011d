package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Verdict is what is said of a device and a case.
type Verdict string

// The verdicts.
const (
	// VerdictPass: the clause is met.
	VerdictPass Verdict = "pass"
	// VerdictFail: it is not met, or what the device claims it refuses.
	VerdictFail Verdict = "fail"
	// VerdictUnsupported: the device never claimed it, or this bench cannot ask.
	VerdictUnsupported Verdict = "unsupported"
	// VerdictDeviates: it is not met, which is known and reasoned.
	VerdictDeviates Verdict = "deviates"
	// VerdictStale: it is met though a deviation is on record.
	VerdictStale Verdict = "stale"
	// VerdictBroken: the case could not be run; nothing is said of the device.
	VerdictBroken Verdict = "broken"
)

// Verdicts lists them, best first.
func Verdicts() []Verdict {
	return []Verdict{VerdictPass, VerdictUnsupported, VerdictDeviates, VerdictStale, VerdictFail, VerdictBroken}
}

// Good reports whether the verdict leaves nothing to be done.
func (v Verdict) Good() bool {
	return v == VerdictPass || v == VerdictUnsupported || v == VerdictDeviates
}

// Lab makes benches.
type Lab interface {
	// Try makes a bench as the job wants it, runs the body on it, and takes it down
	// again. It returns what the body returned. An error of its own is one that the
	// bench could not be made, or could not go on: a *SetupError if the device
	// refuses to be set up so, a *HangError if the case came to no end.
	Try(ctx context.Context, job Job, body func(*Bench) error) error
}

// Job is what a bench is wanted for.
type Job struct {
	// Case is the case's ID, to name things by.
	Case  string
	Setup Setup
	Needs verbs.Caps
	// Quirks are the defects that the device is to have.
	Quirks []string
	Seed   uint64
	Record *Record
}

// HangError says that a case came to no end.
type HangError struct{ Waiting string }

// Error says what was waited for.
func (e *HangError) Error() string { return "the case came to no end: " + e.Waiting }

// CrashError says that the device's host did not outlive a case. Of a case that is known to
// crash devices ([Dangerous]) it is the device's answer, and a failure; during any other it
// may be what an earlier one has left behind, and nothing is said of the device.
type CrashError struct{ Cause error }

// Error says how it ended.
func (e *CrashError) Error() string {
	return "the device's host did not outlive the case: " + e.Cause.Error()
}

// Unwrap is what is known of it.
func (e *CrashError) Unwrap() error { return e.Cause }

// Options is how a case is judged.
type Options struct {
	Quirks []string
	Seed   uint64
	// Deviations are the known ones of the device, by case.
	Deviations map[string]Deviation
	// Schedules is how many schedules cases explore that explore several; 0 for as many
	// as each usually does. Progress, if not nil, is told how far they are, by whoever
	// runs them.
	Schedules int
	Progress  func(c *Case, done, total int)
}

// Deviation is what is known of a case that a device does not pass.
type Deviation struct {
	// Reason is why, for people.
	Reason string
	// Sometimes says that what the device does wrong shows by chance: a case that it
	// passes proves nothing then, and does not make the deviation stale.
	Sometimes bool
}

// Result is what came of a case.
type Result struct {
	Case    *Case
	Verdict Verdict
	// Err is what was not met, or went wrong; nil for a pass. For an unsupported case
	// it is the reason.
	Err error
	// Deviation is why it is known not to be met, of a case that deviates or is stale.
	Deviation string
	Quirks    []string
	Seed      uint64
	// Took is how long it took to find out, in real time.
	Took   time.Duration
	Record *Record
}

// Judge runs a case in a lab. A case is unsupported only if the device does not claim
// what the case needs, or what it has to be set up for, or if the bench cannot ask. What
// a device claims and refuses is a failure.
func Judge(ctx context.Context, lab Lab, c *Case, opt Options) Result {
	res := Result{Case: c, Quirks: opt.Quirks, Seed: opt.Seed, Record: new(Record)}
	job := Job{Case: c.ID, Setup: c.Setup, Needs: c.Needs, Quirks: opt.Quirks, Seed: opt.Seed, Record: res.Record}
	begun := time.Now()
	opened := false
	err := lab.Try(ctx, job, func(b *Bench) error {
		opened = true
		if lacks := c.Needs &^ b.Caps; lacks != 0 {
			return &UnclaimedError{CapWords(lacks)}
		}
		if !b.Virtual {
			b.measureCalls()
		}
		opt.explore(b, c)
		return c.Run(b)
	})
	if setup := new(SetupError); !opened && errors.As(err, &setup) {
		err = refused(ctx, lab, job, setup)
	}
	res.Took = time.Since(begun)
	if c.Dangerous() && errors.As(err, new(*CrashError)) {
		err = Violated("a device that is alive", err.Error())
	}
	known, deviates := opt.Deviations[c.ID]
	res.Verdict, res.Err = verdict(err, deviates, known.Sometimes)
	switch res.Verdict {
	case VerdictDeviates:
		res.Deviation = known.Reason
	case VerdictStale:
		res.Deviation = known.Reason
		res.Err = fmt.Errorf("%s passes: delete its deviation (%s)", c.ID, known.Reason)
	}
	return res
}

// verdict says what an outcome means where a deviation is known, or none.
func verdict(err error, known, sometimes bool) (Verdict, error) {
	failed := VerdictFail
	if known {
		failed = VerdictDeviates
	}
	switch {
	case err == nil && known && !sometimes:
		return VerdictStale, nil
	case err == nil:
		return VerdictPass, nil
	case errors.As(err, new(*UnclaimedError)), errors.As(err, new(*SetupError)), errors.Is(err, ErrCannot):
		return VerdictUnsupported, err
	case IsViolation(err):
		return failed, err
	case errors.Is(err, verbs.ErrNotSupported):
		return failed, fmt.Errorf("the device claims the capability and refuses: %w", err)
	default:
		return VerdictBroken, err
	}
}
