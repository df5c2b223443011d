package dgiwarp

import (
	"github.com/fabrictest/fabrictest/emu/defects/dgwire"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
)

// defectiveNIC is the engine as package dgwire needs it.
type defectiveNIC struct{ *engine.NIC }

var _ dgwire.NIC = defectiveNIC{}

// QPs implements dgwire.NIC.
func (f defectiveNIC) QPs() (all []dgwire.QP) {
	for q := range f.NIC.QPs() {
		all = append(all, dgwire.QP{Num: q.Num(), Key: q.Query().QKey, Reliable: q.Reliable()})
	}
	return all
}
