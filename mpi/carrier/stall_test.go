package carrier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// stallFor is longer than PeerTimeout.
const stallFor = time.Minute

// A rank that was not scheduled for a minute has sent no probes in it: it probes again
// before it declares the peer lost.
func TestStalledRankDoesNotLoseItsPeer(t *testing.T) {
	for name, program := range map[string]func(r *rank) error{
		// The packet of rank 0 and its retransmissions are lost until the link is up again.
		"retransmission": func(r *rank) error {
			q := &p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 10)}
			if r.Rank == 0 {
				r.engine.Isend(q)
				must.Do(t, r.wait("a retransmission", func() bool { return r.Stats().Retransmitted > 0 }))
				r.Env.Proc.Sleep(stallFor)
			} else {
				r.engine.Irecv(q)
				r.Env.Proc.Sleep(stallFor)
			}
			return r.waitAll(q)
		},
		// Until the link is up again, rank 0 sends probes only.
		"keepalive": func(r *rank) error {
			q := &p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 10)}
			if r.Rank == 0 {
				r.engine.Irecv(q)
				probed := r.Now() + time.Second
				must.Do(t, r.wait("a probe", func() bool { return r.Now() > probed }))
				r.Env.Proc.Sleep(stallFor)
			} else {
				r.Env.Proc.Sleep(stallFor + 3*time.Second)
				r.engine.Isend(q)
			}
			return r.waitAll(q)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := mpihost.Fabric{Ranks: 2, Script: func(w *mpihost.World) {
				w.At(time.Millisecond, func() { w.LinkDown(1, -1) })
				w.At(stallFor-time.Second, func() { w.LinkUp(1, -1) })
			}}
			_, err := runOnFabric(f, setting{"softroce", carrier.UD, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
				must.Do(t, r.wait("the link failure", func() bool { return r.Now() > 2*time.Millisecond }))
				return program(r)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A silent peer gets one probe at a time, however many requests wait for it.
func TestManyPendingRequestsDoNotLosePeer(t *testing.T) {
	const down = 3 * time.Second // less than PeerTimeout
	f := mpihost.Fabric{Ranks: 2, Script: func(w *mpihost.World) {
		w.At(time.Millisecond, func() { w.LinkDown(1, -1) })
		w.At(down, func() { w.LinkUp(1, -1) })
	}}
	_, err := runOnFabric(f, setting{"softroce", carrier.UD, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		must.Do(t, r.wait("the link failure", func() bool { return r.Now() > 2*time.Millisecond }))
		if r.Rank == 1 {
			r.Env.Proc.Sleep(down)
		}
		var qs []*p2p.Request
		for i := range 100 {
			q := &p2p.Request{Peer: 1 - r.Rank, Tag: int32(i), Buf: make([]byte, 10)}
			if qs = append(qs, q); r.Rank == 0 {
				r.engine.Irecv(q)
			} else {
				r.engine.Isend(q)
			}
		}
		return r.waitAll(qs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// A rail does not fail because of requests that were outstanding while the rank was not
// scheduled.
func TestStalledRankKeepsItsRails(t *testing.T) {
	const stall = 5 * time.Second
	f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) {
		w.At(time.Second, func() { w.LinkDown(1, 0) })
		w.At(time.Second+stall+700*time.Millisecond, func() { w.LinkUp(1, 0) }) // after the rank has resumed
	}}
	_, err := runOnFabric(f, setting{"softiwarp", carrier.SendRecv, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		for i := range 4 { // opens all connections
			must.Do(t, r.exchange(make([]byte, 100), i))
		}
		must.Do(t, r.wait("the link failure", func() bool { return r.Now() > time.Second+time.Millisecond }))
		var qs []*p2p.Request
		for i := range 4 { // on both rails
			q := &p2p.Request{Peer: 1 - r.Rank, Tag: int32(i), Buf: make([]byte, 100), Mode: p2p.Synchronous}
			if r.Rank == 0 {
				r.engine.Isend(q)
			} else {
				r.engine.Irecv(q)
			}
			qs = append(qs, q)
		}
		r.Carrier.Progress()
		r.Env.Proc.Sleep(stall)
		must.Do(t, r.waitAll(qs...))
		if n := r.Stats().RailsLost; n > 0 {
			return fmt.Errorf("rank %d lost %d rails", r.Rank, n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
