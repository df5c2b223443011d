package mpihost_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// In a k-port algorithm a short message is sent when the NIC of the receiver has it: in each step the root waits for a round
// trip. In other algorithms it is sent when it is copied.
func TestPortsWaitForAcknowledgements(t *testing.T) {
	const ranks, roundTrip = 5, 40 * time.Microsecond
	rootTime := func(algorithm string, d carrier.Design, rails int) (took time.Duration) {
		f := mpihost.Fabric{Ranks: ranks, Rails: rails, Limit: time.Minute, Link: sim.LinkConfig{Latency: roundTrip / 4}}
		var o mpi.Options
		o.Carrier.Design = d
		must.Do(t, o.Collectives.UnmarshalText([]byte("scatter="+algorithm)))
		must.Get(mpihost.InWorld(f, func(e *transport.Env) error {
			return mpi.Run(e, o, func(w *mpi.World) error {
				in, out := make([]byte, 8*ranks), make([]byte, 8)
				for range 20 { // until connections and rings are open
					must.Do(t, w.Barrier())
					began := w.Wtime()
					must.Do(t, w.Scatter(in, out, 0))
					if w.Rank() == 0 {
						took = w.Wtime() - began
					}
				}
				return nil
			})
		}))(t)
		return took
	}
	for _, d := range []carrier.Design{carrier.SRQ, carrier.RingSRQ} {
		for rails := 1; rails <= 2; rails++ {
			steps := time.Duration((ranks - 1) / rails)
			if took := rootTime("kport-direct", d, rails); took < steps*roundTrip || took > steps*roundTrip*5/4 {
				t.Errorf("%s, %d rails: the root needs %v for %d steps, want as many round trips of %v", d, rails, took, steps, roundTrip)
			}
			if took := rootTime("linear", d, rails); took > roundTrip/2 {
				t.Errorf("%s, %d rails: the root needs %v to copy its messages", d, rails, took)
			}
		}
	}
}
