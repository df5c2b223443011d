package carrier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// With two rails either may fail at any time: no eager message, notice, read or write is
// lost, and no notice overtakes its data.
func TestTrafficSurvivesLossOfRail(t *testing.T) {
	k := 0
	for _, p := range nics.All() {
		for _, design := range designsOf(p) {
			for _, protocol := range []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative} {
				k++
				rail, size, count := k/3%2, []int{300, 20_000, 100_000}[k%3], []int{100, 60, 40}[k%3]
				t.Run(fmt.Sprintf("%s/%s/%s/%d/rail %d", p.Name, design, protocol, size, rail), func(t *testing.T) {
					f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) {
						w.At(150*time.Microsecond, func() { w.LinkDown(1, rail) })
					}}
					must.Get(runOnFabric(f, setting{p.Name, design, protocol, 0}, carrier.Config{}, func(r *rank) error {
						must.Do(t, r.exchangeMessages(count, size))
						if r.Now() < 200*time.Microsecond {
							return fmt.Errorf("the exchange ended at %v, before the link failed", r.Now())
						}
						return nil
					}))(t)
				})
			}
		}
	}
}

// An interface that goes down loses its address, and its NIC creates no more address handles
// and connections. All traffic moves to the other rail, at any time of the loss.
func TestTrafficSurvivesLossOfInterfaceAddress(t *testing.T) {
	for i, s := range settings() {
		if s.loss != 0 {
			continue
		}
		for rail := range 2 {
			times := []time.Duration{0, 10 * time.Microsecond, 30 * time.Microsecond, 150 * time.Microsecond}
			for _, at := range times[(i+rail)%4 : (i+rail)%4+1] {
				t.Run(fmt.Sprintf("%v/rail %d/%v", s, rail, at), func(t *testing.T) {
					var world *mpihost.World
					f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) { world = w }}
					must.Get(runOnFabric(f, s, carrier.Config{StripeThreshold: 2048}, func(r *rank) error {
						if r.Rank == 1 {
							port, addr := world.Port(1, rail), r.NICs[rail].Addr
							world.At(r.Now()+at, func() {
								port.SetDown()
								if err := port.RemoveAddr(addr); err != nil {
									t.Error(err)
								}
							})
						}
						must.Do(t, r.exchangeMessages(60, 300))
						return r.exchangeMessages(20, 5000)
					}))(t)
				})
			}
		}
	}
}

// A rank counts a lost rail, and the other rail carries all traffic.
func TestLostRailsAreCounted(t *testing.T) {
	f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) {
		w.At(300*time.Microsecond, func() { w.LinkDown(1, 1) })
	}}
	must.Get(runOnFabric(f, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		must.Do(t, r.exchangeMessages(400, 300))
		if s := r.Stats(); s.RailsLost != 1 {
			return fmt.Errorf("rank %d: %d rails lost at %v: %+v", r.Rank, s.RailsLost, r.Now(), s)
		}
		return nil
	}))(t)
}

// Successive messages use successive rails also if each goes to another peer, as in k-port collectives.
func TestMessagesToDifferentPeersUseDifferentRails(t *testing.T) {
	const peers, size = 3, 300
	must.Get(runOnFabric(mpihost.Fabric{Ranks: 1 + peers, Rails: peers}, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		for range 5 { // connects all rails
			must.Do(t, r.sendToAll(1))
			must.Do(t, r.barrier())
		}
		before := r.Stats().ByRail
		must.Do(t, r.sendToAll(size))
		if by := r.Stats().ByRail; r.Rank == 0 {
			for rail := range peers {
				if n := by[rail] - before[rail]; n < size || n >= 2*size {
					t.Errorf("rail %d carried %d bytes of three messages with %d bytes each", rail, n, size)
				}
			}
		}
		return r.barrier()
	}))(t)
}

// sendToAll sends n bytes from rank 0 to each other rank at once.
func (r *rank) sendToAll(n int) error {
	if r.Rank != 0 {
		return r.waitAll(r.irecv(0, 0, make([]byte, n)))
	}
	var sends []*p2p.Request
	for peer := 1; peer < r.Size; peer++ {
		sends = append(sends, r.isend(peer, 0, pattern(n, peer)))
	}
	return r.waitAll(sends...)
}
