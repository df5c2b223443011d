package softroce

import (
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/flaw"
	"github.com/fabrictest/fabrictest/verbs"
)

// flawed is the engine as the flaws at its wire see it.
type flawed struct{ *engine.NIC }

var _ flaw.NIC = flawed{}

// QPs implements flaw.NIC.
func (f flawed) QPs() (all []flaw.QP) {
	for q := range f.NIC.QPs() {
		a := q.Query()
		own, peer := q.Ends()
		all = append(all, flaw.QP{
			Num: q.Num(), Service: q.Transport(), State: q.State(), Own: own, Peer: peer, PeerQPN: uint32(a.DestQPN),
			MTU: a.PathMTU.Bytes(), Access: a.Access, Expected: q.Expected(),
			Armed: a.PathMigState == verbs.MigArmed, Ready: q.HasReceive(),
		})
	}
	return all
}

// GIDs implements flaw.NIC.
func (f flawed) GIDs() []verbs.GIDEntry { return f.Config().GIDs }

// Dropped implements flaw.NIC.
func (f flawed) Dropped() (all, noReceive uint64) { return f.Count.Dropped(), f.Count.DropNoReceive }
