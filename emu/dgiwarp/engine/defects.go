package engine

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// Defects make a NIC misbehave on purpose. They are those of the objects that all
// emulated NICs share, which imitate real devices. No device has datagram-iWARP: its
// own defects are in emu/defects, as mutants and as changes of its packets.
type Defects struct {
	// Queues and Memory disable checks of queues, keys, windows and ranges.
	Queues nic.Defects
	Memory nic.MemoryDefects
}

// AllDefects lists every defect in the order of the struct.
func AllDefects() []nic.DefectInfo { return nic.AllDefects(new(Defects)) }

// Set switches a defect on or off by its name.
func (q *Defects) Set(name string, on bool) error { return nic.SetDefect(q, name, on) }
