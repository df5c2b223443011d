package engine

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// DefectInfo describes a defect.
type DefectInfo = nic.DefectInfo

// AllDefects lists all defects in the order of the struct, those of Queues and
// Memory last.
func AllDefects() []DefectInfo { return nic.AllDefects(new(Defects)) }

// Set switches a defect on or off by its name.
func (q *Defects) Set(name string, on bool) error { return nic.SetDefect(q, name, on) }

// Names lists the defects that are switched on.
func (q *Defects) Names() []string { return nic.DefectsOn(q) }
