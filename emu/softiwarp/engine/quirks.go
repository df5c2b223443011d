package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Quirks make a NIC misbehave on purpose. Each imitates a defect that a real
// device or driver has, or had, soft-iWARP of Linux ("siw") above all; the zero
// value has none. They serve two ends: applications can be tried against a flawed
// NIC, and a conformance case proves that it can fail by failing on the quirk it
// was written for.
//
// Tags say what a quirk does and whose defect it is, or which requirement it
// breaks.
type Quirks struct {
	// Connections and states.
	FINDropsAnswers     bool `defect:"siw, rfc5041/6.2.1/3" does:"when the peer has ended its half of the stream, its reads are no longer answered"`
	NoStartupTerminate  bool `defect:"siw, rfc6581/9.3/1" does:"a connection that cannot be used when the Reply comes is reset without a word"`
	BusyCloseIsIdle     bool `defect:"siw" does:"a queue pair that is closed with work outstanding becomes idle, not failed"`
	RTRIgnored          bool `defect:"siw" does:"a modify to RTR succeeds and changes nothing"`
	TerminateUnreported bool `defect:"siw, rfc5040/5.4/3" does:"nobody is told of a Terminate that comes in, nor of its reason"`

	// Completions.
	InvalidateUnreported bool `defect:"siw" does:"a receive completion does not say what the sender invalidated"`

	// MPA, DDP and RDMAP have their own.
	MPA    mpa.Quirks
	Stream iwarp.Lax
	// Queues and Memory switch off checks of queues, keys, windows and ranges.
	Queues nic.Lax
	Memory core.Lax
}
