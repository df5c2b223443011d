package rig

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// Quiet is how long silence lasts in virtual time where no timer runs.
const Quiet = time.Second

// Data is n bytes for a peer to send.
func Data(n int) []byte { return Pattern(n, 0x5a) }

// Inapplicable ends the case: the device does not do what the clause is about, and need
// not, or the bench cannot show it.
func Inapplicable(why string) { End(&conformance.SetupError{Reason: why}) }
