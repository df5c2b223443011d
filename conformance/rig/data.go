package rig

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// SilencePeriod is how long a case waits, in virtual time, to show that nothing is sent.
const SilencePeriod = time.Second

// Data returns n bytes of payload.
func Data(n int) []byte { return Pattern(n, 0x5a) }

// NotApplicable ends the case as unsupported: the device need not have the feature that
// the clause is about, or the bench cannot test it.
func NotApplicable(why string) { Abort(&conformance.SetupError{Reason: why}) }
