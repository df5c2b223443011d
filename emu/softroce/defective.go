package softroce

import (
	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// defectiveNIC is the engine as package rocewire needs it.
type defectiveNIC struct{ *engine.NIC }

var _ rocewire.NIC = defectiveNIC{}

// QPs implements rocewire.NIC.
func (f defectiveNIC) QPs() (all []rocewire.QP) {
	for q := range f.NIC.QPs() {
		a := q.Query()
		own, peer := q.Ends()
		all = append(all, rocewire.QP{
			Num: q.Num(), Service: q.Transport(), State: q.State(), Own: own, Peer: peer, PeerQPN: uint32(a.DestQPN),
			MTU: a.PathMTU.Bytes(), TClass: a.AH.GRH.TrafficClass, Access: a.Access, Expected: q.Expected(),
			Armed: a.PathMigState == verbs.MigArmed, Ready: q.HasReceive(),
		})
	}
	return all
}

// GIDs implements rocewire.NIC.
func (f defectiveNIC) GIDs() []verbs.GIDEntry { return f.Config().GIDs }

// Dropped implements rocewire.NIC.
func (f defectiveNIC) Dropped() (all, noReceive uint64) {
	return f.Count.Dropped(), f.Count.DropNoReceive
}
