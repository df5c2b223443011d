package carrier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// stallFor is longer than a peer is given to answer.
const stallFor = time.Minute

// A rank that was not scheduled for a minute has not asked its peer for a minute: it
// asks again before it declares the peer lost.
func TestStalledRankDoesNotLoseItsPeer(t *testing.T) {
	for name, program := range map[string]func(r *rank) error{
		// The packet of rank 0 is lost, and its retransmissions are until the cable is mended.
		"retransmission": func(r *rank) error {
			q := &p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 10)}
			if r.Rank == 0 {
				r.engine.Isend(q)
				if err := r.wait("a retransmission", func() bool { return r.Stats().Retransmitted > 0 }); err != nil {
					return err
				}
				r.Env.Proc.Sleep(stallFor)
			} else {
				r.engine.Irecv(q)
				r.Env.Proc.Sleep(stallFor)
			}
			return r.finish(q)
		},
		// Nobody sends anything until the cable is mended: rank 0 asks whether rank 1 is there.
		"keepalive": func(r *rank) error {
			q := &p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 10)}
			if r.Rank == 0 {
				r.engine.Irecv(q)
				asked := r.Now() + time.Second
				if err := r.wait("a question", func() bool { return r.Now() > asked }); err != nil {
					return err
				}
				r.Env.Proc.Sleep(stallFor)
			} else {
				r.Env.Proc.Sleep(stallFor + 3*time.Second)
				r.engine.Isend(q)
			}
			return r.finish(q)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := mpihost.Fabric{Ranks: 2, Script: func(w *mpihost.World) {
				w.At(time.Millisecond, func() { w.Cut(1, -1) })
				w.At(stallFor-time.Second, func() { w.Mend(1, -1) })
			}}
			_, err := try(f, setting{"softroce", carrier.UD, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
				if err := r.wait("the cut", func() bool { return r.Now() > 2*time.Millisecond }); err != nil {
					return err
				}
				return program(r)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A rail is not given up for what was under way on it while the rank was not
// scheduled.
func TestStalledRankKeepsItsRails(t *testing.T) {
	const stall = 5 * time.Second
	f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) {
		w.At(time.Second, func() { w.Cut(1, 0) })
		w.At(time.Second+stall+700*time.Millisecond, func() { w.Mend(1, 0) }) // after the rank has gone on
	}}
	_, err := try(f, setting{"softiwarp", carrier.SendRecv, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		for i := range 4 { // all connections stand
			if err := r.exchange(make([]byte, 100), i); err != nil {
				return err
			}
		}
		if err := r.wait("the cut", func() bool { return r.Now() > time.Second+time.Millisecond }); err != nil {
			return err
		}
		var qs []*p2p.Request
		for i := range 4 { // some by each rail
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
		if err := r.finish(qs...); err != nil {
			return err
		}
		if n := r.Stats().RailsLost; n > 0 {
			return fmt.Errorf("rank %d gave up %d rails", r.Rank, n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
