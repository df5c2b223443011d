package engine

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// QuirkInfo describes a quirk.
type QuirkInfo = nic.QuirkInfo

// AllQuirks lists every quirk in the order of the struct, those of the layers
// below last.
func AllQuirks() []QuirkInfo { return nic.AllQuirks(new(Quirks)) }

// Set switches a quirk on or off by its name.
func (q *Quirks) Set(name string, on bool) error { return nic.SetQuirk(q, name, on) }

// Names lists the quirks that are switched on.
func (q *Quirks) Names() []string { return nic.QuirksOn(q) }
