package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Defects make a NIC misbehave on purpose. Each imitates a defect that a real
// device or driver has, or had, soft-iWARP of Linux ("siw") above all; the zero
// value has none. They serve two ends: applications can be tried against a defective
// NIC, and a conformance case proves that it can fail by failing on the defect it
// was written for.
//
// Tags say what a defect does and whose defect it is, or which requirement it
// breaks.
type Defects struct {
	// Connections and states.
	FINDropsAnswers     bool `imitates:"siw, rfc5041/6.2.1/3" does:"when the peer has ended its half of the stream, its reads are no longer answered"`
	NoStartupTerminate  bool `imitates:"siw, rfc6581/9.3/1" does:"a connection that cannot be used when the Reply comes is reset without a word"`
	BusyCloseIsIdle     bool `imitates:"siw" does:"a queue pair that is closed with work outstanding becomes idle, not failed"`
	RTRIgnored          bool `imitates:"siw" does:"a modify to RTR succeeds and changes nothing"`
	TerminateUnreported bool `imitates:"siw, rfc5040/5.4/3" does:"nobody is told of a Terminate that comes in, nor of its reason"`

	EndUnreported        bool `imitates:"rfc5044/7.2/1, rfc5044/8/1, rfc5041/6.2.2/1, rfc5040/7.1/1" does:"that a connection has ended, nobody is told"`
	DisconnectDropsQueue bool `imitates:"rfc5041/6.2.1/1" does:"disconnecting drops what was posted"`
	OwnDepthsReported    bool `imitates:"rfc6581/9.1/1, rfc6581/9.1/8" does:"the program is shown its own depths in place of the peer's"`
	CQOverrunSpreads     bool `imitates:"rfc5040/8.1.1/2, rfc5042/6.4.6/1" does:"a completion queue that is full fails every queue pair"`

	// Requests and completions.
	InvalidateUnreported bool `imitates:"siw" does:"a receive completion does not say what the sender invalidated"`
	FlushForgets         bool `imitates:"rfc5041/6.2.2/2, rfc5041/6.2.1/2, rfc5040/6.2.1/2, rfc5040/5.4/5" does:"requests that are outstanding when a connection ends never complete, nor do later ones"`
	LIFOQueue            bool `imitates:"rfc5041/5.3/1, rfc5040/5.1/2, rfc5040/5.2.1/4, rfc5040/5.3/7, rfc5040/5.5/4, rfc7306/5.2.1/5, rfc7306/6.3/4" does:"what is posted in one call leaves in reverse"`
	LengthModulo         bool `imitates:"rfc5041/5.2/4" does:"lengths are added up in 32 bits"`
	BufferSizeReported   bool `imitates:"rfc5041/5.4/2, rfc5040/5.3/3" does:"receives report the size of their memory"`
	SRQLimitSilent       bool `imitates:"rfc5042/6.4.3.1/1" does:"a shared receive queue that falls below its limit raises no event"`
	KeysCount            bool `imitates:"rfc5040/8.1.1/1" does:"keys count up"`
	KeysStride           bool `imitates:"rfc5040/8.1.1/1" does:"each key is a fixed step after the last but one"`
	KeysReused           bool `imitates:"rfc5040/8.1.1/1" does:"the key after one whose memory is gone is one more"`
	KeysRepeat           bool `imitates:"rfc5040/8.1.1/1" does:"keys are the same each time that the device is opened"`

	// MPA, DDP and RDMAP have their own.
	MPA    mpa.Defects
	Stream iwarp.Defects
	// Queues and Memory switch off checks of queues, keys, windows and ranges.
	Queues nic.Defects
	Memory nic.MemoryDefects
}
