package carrier_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// sendUntilFailure keeps requests of all sizes outstanding to a peer until one fails, and then
// waits for the rest.
func (r *rank) sendUntilFailure(peer int) error {
	sizes := []int{8, 900, 5000, 70_000}
	for {
		qs := make([]*p2p.Request, 0, 2*len(sizes))
		for i, n := range sizes {
			qs = append(qs, &p2p.Request{Peer: peer, Tag: int32(i), Buf: make([]byte, n)})
			r.engine.Irecv(qs[len(qs)-1])
			qs = append(qs, &p2p.Request{Peer: peer, Tag: int32(i), Buf: make([]byte, n)})
			r.engine.Isend(qs[len(qs)-1])
		}
		for slices.ContainsFunc(qs, func(q *p2p.Request) bool { return !q.Done() }) {
			r.Carrier.Progress()
			pause := 20 * time.Microsecond // Wait needs the NIC
			if r.Now() > time.Millisecond {
				pause = time.Millisecond
			}
			r.Proc.Sleep(pause)
			if r.Now() > time.Minute {
				return fmt.Errorf("rank %d: requests do not end", r.Rank)
			}
		}
		if slices.ContainsFunc(qs, func(q *p2p.Request) bool { return q.Err != nil }) {
			return nil
		}
	}
}

// Every request ends when a NIC disappears, although its work requests do not complete.
func TestRequestsFailWhenNICDisappears(t *testing.T) {
	for _, s := range settings() {
		if s.loss != 0 {
			continue
		}
		for _, at := range []time.Duration{40 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond} {
			t.Run(fmt.Sprintf("%v/%v", s, at), func(t *testing.T) {
				f := mpihost.Fabric{Ranks: 2, Script: func(w *mpihost.World) {
					w.At(at, func() { _ = w.Device(0, 0).Close() })
				}}
				cfg := carrier.Config{Waiting: carrier.Waiting{PeerTimeout: 2 * time.Second}, Reuse: memory.Reuse{Thresholds: memory.Thresholds{1}}}
				out, err := runOnFabric(f, s, cfg, func(r *rank) error {
					if err := r.sendUntilFailure(1 - r.Rank); err != nil {
						return err
					}
					if r.engine.Busy() {
						return fmt.Errorf("rank %d: requests are pending", r.Rank)
					}
					return errDone
				})
				for i, r := range out.Ranks {
					if r.Err == nil || r.Err.Error() != errDone.Error() {
						t.Errorf("rank %d: %v (%v)", i, r.Err, err)
					}
				}
			})
		}
	}
}
