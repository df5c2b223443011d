package carrier_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// burst starts many sends of alternating sizes at rank 0, and receives and checks them at
// rank 1.
func burst(r *rank, count int, sizes ...int) ([]*p2p.Request, error) {
	qs := make([]*p2p.Request, count)
	for i := range qs {
		buf := bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)])
		q := &p2p.Request{Peer: 1 - r.Rank, Context: 1, Tag: 5, Buf: buf}
		if r.Rank == 1 {
			clear(buf)
			r.engine.Irecv(q)
		} else {
			r.engine.Isend(q)
		}
		qs[i] = q
	}
	err := r.waitAll(qs...)
	for i, q := range qs {
		if want := bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)]); err == nil && !bytes.Equal(q.Buf, want) {
			err = fmt.Errorf("message %d is %x", i, q.Buf)
		}
	}
	return qs, err
}

// Small messages that are started together share packets, in order, also between other
// messages.
func TestBurstOfSmallMessagesIsCoalesced(t *testing.T) {
	const count = 240
	for _, c := range []struct {
		design carrier.Design
		off    bool
		sizes  []int
		most   uint64 // packets
	}{
		{carrier.SRQ, false, []int{64}, 20},
		{carrier.RingSRQ, false, []int{64}, 20},
		{carrier.SendRecv, false, []int{8, 64, 500}, 60},
		{carrier.SRQ, false, []int{64, 64, 64, 600}, 2 * count},       // large messages interrupt coalescing
		{carrier.RingSRQ, false, []int{64, 64, 64, 20000}, 4 * count}, // rendezvous messages as well
		{carrier.SRQ, true, []int{64}, 2 * count},
		{carrier.UD, false, []int{64}, 2 * count},
	} {
		t.Run(fmt.Sprint(c.design, c.off, c.sizes), func(t *testing.T) {
			runRanks(t, 2, setting{"softroce", c.design, p2p.RGET, 0}, carrier.Config{NoCoalescing: c.off}, func(r *rank) error {
				if _, err := burst(r, 8, 8); err != nil { // connects
					return err
				}
				before := r.Stats()
				must.Get(burst(r, count, c.sizes...))(t)
				now := r.Stats()
				packets := now.Packets[carrier.OverConnection] + now.Packets[carrier.OverRing] - before.Packets[carrier.OverConnection] - before.Packets[carrier.OverRing]
				coalesced := now.Coalesced - before.Coalesced
				switch {
				case r.Rank == 1:
				case packets > c.most:
					t.Errorf("%d messages were sent in %d packets, want at most %d", count, packets, c.most)
				case (coalesced == 0) != (c.off || c.design == carrier.UD):
					t.Errorf("%d messages were coalesced", coalesced)
				}
				return nil
			})
		})
	}
}

// The first messages of a burst are not deferred, because no more may follow.
func TestFirstMessagesOfBurstAreNotDeferred(t *testing.T) {
	runRanks(t, 2, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		must.Get(burst(r, 8, 8))(t)
		if r.Rank == 0 {
			r.Carrier.Progress()
			for i := range 5 {
				r.engine.Isend(&p2p.Request{Peer: 1, Context: 1, Tag: 9, Buf: []byte{byte(i)}})
			}
			if r.flushNeeded == 0 {
				t.Error("FlushNeeded was not called")
			}
		}
		before := r.arrived
		r.Proc.Sleep(time.Millisecond) // without Progress
		r.Carrier.Progress()
		if got := r.arrived - before; r.Rank == 1 && got != 2 {
			t.Errorf("%d of 5 messages have arrived, want the 2 that are not deferred", got)
		}
		if r.Rank == 1 {
			return r.wait("the deferred messages", func() bool { return r.arrived-before == 5 })
		}
		return nil
	})
}
