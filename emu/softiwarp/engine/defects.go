package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Defects make a NIC behave as soft-iWARP of Linux does ("siw"), so that programs can be
// tried against it; the zero value has none. Tags say what a defect does, and which
// requirement of the RFCs it violates. Other defects of the engine are in
// emu/defects/mutants.
type Defects struct {
	// Connections and states.
	FINDropsAnswers     bool `imitates:"siw, rfc5041/6.2.1/3" does:"when the peer has ended its half of the stream, its reads are no longer answered"`
	NoStartupTerminate  bool `imitates:"siw, rfc6581/9.3/1" does:"a connection that cannot be used when the Reply comes is reset without a word"`
	BusyCloseIsIdle     bool `imitates:"siw" does:"a queue pair that is closed with work outstanding becomes idle, not failed"`
	TerminateUnreported bool `imitates:"siw, rfc5040/5.4/3" does:"nobody is told of a Terminate that comes in, nor of its reason"`

	// MPA, DDP and RDMAP have their own.
	MPA    mpa.Defects
	Stream iwarp.Defects
	// Queues and Memory disable checks of queues, keys, windows and ranges.
	Queues nic.Defects
	Memory nic.MemoryDefects
}

// DefectInfo describes a defect.
type DefectInfo = nic.DefectInfo

// AllDefects lists every defect in the order of the struct, those of the layers
// below last.
func AllDefects() []DefectInfo { return nic.AllDefects(new(Defects)) }

// Set switches a defect on or off by its name.
func (q *Defects) Set(name string, on bool) error { return nic.SetDefect(q, name, on) }

// Names lists the defects that are switched on.
func (q *Defects) Names() []string { return nic.DefectsOn(q) }
