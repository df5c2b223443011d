package mpihost

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// Ranks on different leaves of a fat tree exchange messages, whose packets cross two trunks.
func TestRanksInFatTree(t *testing.T) {
	const size = 6
	hopLimits := map[uint8]int{} // of packets that have arrived
	f := Fabric{Ranks: size, Leaves: 3, Spines: 2, Script: func(w *World) {
		w.Port(0, 0).Net().SetTap(func(_ mono.Time, _ *sim.Port, dir sim.Direction, d *link.Datagram) {
			if dir == sim.In {
				hopLimits[d.HopLimit]++
			}
		})
	}}
	must.Get(InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{}, func(w *mpi.World) error {
			in := make([]byte, 1)
			_, err := w.Sendrecv([]byte{byte(w.Rank())}, (w.Rank()+2)%size, 1, in, (w.Rank()+size-2)%size, 1)
			if want := byte((w.Rank() + size - 2) % size); in[0] != want {
				t.Errorf("rank %d received %d, want %d", w.Rank(), in[0], want)
			}
			return err
		})
	}))(t)
	// Packets between leaves pass three routers, those within a leaf none.
	if len(hopLimits) != 2 || hopLimits[64] == 0 || hopLimits[61] == 0 {
		t.Errorf("packets by hop limit: %v", hopLimits)
	}
	if err := must.Err(InWorld(Fabric{Ranks: 2, Leaves: 3, Spines: 1}, func(*transport.Env) error { return nil })); err == nil {
		t.Error("a fat tree with more leaves than hosts was accepted")
	}
}
