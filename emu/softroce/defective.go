package softroce

import (
	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// defectiveNIC is the engine as package rocewire needs it.
type defectiveNIC struct{ *engine.NIC }

var _ rocewire.NIC = defectiveNIC{}

// QPs implements rocewire.NIC: it returns the state of each queue pair.
func (f defectiveNIC) QPs() (all []rocewire.QP) {
	for q := range f.NIC.QPs() {
		a := q.Query()
		_, peer := q.Ends()
		all = append(all, rocewire.QP{
			Num: q.Num(), Service: q.Transport(), Peer: peer, PeerQPN: uint32(a.DestQPN),
			TClass: a.AH.GRH.TrafficClass, NextPSN: q.Expected(), Armed: a.PathMigState == verbs.MigArmed,
		})
	}
	return all
}
