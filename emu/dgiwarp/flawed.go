package dgiwarp

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/flaw"
)

// flawed is the engine as the flaws at its wire see it.
type flawed struct{ *engine.NIC }

var _ flaw.NIC = flawed{}

// QPs implements flaw.NIC.
func (f flawed) QPs() (all []flaw.QP) {
	for q := range f.NIC.QPs() {
		all = append(all, flaw.QP{Num: q.Num(), Key: q.Query().QKey, Reliable: q.Reliable()})
	}
	return all
}
