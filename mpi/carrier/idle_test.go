package carrier_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Connections close and reconnect during traffic, which makes requests, disconnects and
// packets cross.
func TestConnectionsReconnectDuringTraffic(t *testing.T) {
	for seed := range uint64(6) {
		chance := rand.New(rand.NewPCG(seed, 1))
		s := setting{
			provider: []string{"softroce", "softiwarp"}[seed%2], protocol: []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[chance.IntN(3)],
			design: []carrier.Design{carrier.SendRecv, carrier.SRQ, carrier.RingSendRecv, carrier.RingSRQ}[chance.IntN(4)],
		}
		if chance.IntN(2) == 0 {
			s.loss = 30_000
		}
		rails := 1 + chance.IntN(2)
		idle := time.Duration(10+chance.IntN(200)) * time.Microsecond
		t.Run(fmt.Sprintf("%d/%v/rails=%d/idle=%v", seed, s, rails, idle), func(t *testing.T) {
			_, err := runOnFabric(mpihost.Fabric{Ranks: 3, Rails: rails}, s, carrier.Config{IdleTimeout: idle}, func(r *rank) error {
				return r.exchangeWithPauses(rand.New(rand.NewPCG(seed, 2)), idle)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// exchangeWithPauses makes every rank send to every other, with random pauses. All ranks draw the
// same sizes.
func (r *rank) exchangeWithPauses(chance *rand.Rand, idle time.Duration) error {
	r.maxWait = idle
	own := rand.New(rand.NewPCG(uint64(r.Rank), 3))
	for round := range 40 {
		var qs []*p2p.Request
		var bufs [][]byte
		size := []int{0, 100, 1500, 20_000}[chance.IntN(4)]
		for peer := range r.Size {
			if peer == r.Rank {
				continue
			}
			buf := make([]byte, size)
			in := &p2p.Request{Peer: peer, Tag: int32(round), Buf: buf}
			out := &p2p.Request{Peer: peer, Tag: int32(round), Buf: pattern(size, round+r.Rank)}
			r.engine.Irecv(in)
			r.engine.Isend(out)
			qs, bufs = append(qs, in, out), append(bufs, buf)
		}
		if err := r.waitAll(qs...); err != nil {
			return fmt.Errorf("rank %d, round %d: %w", r.Rank, round, errors.Join(err, r.firstLost()))
		}
		for i, buf := range bufs {
			if peer := qs[2*i].Source; !bytes.Equal(buf, pattern(size, round+peer)) {
				return fmt.Errorf("rank %d, round %d: message of rank %d is wrong", r.Rank, round, peer)
			}
		}
		until := r.Now() + time.Duration(own.Int64N(int64(3*idle)))
		if err := r.wait("time to pass", func() bool { return r.Now() >= until }); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) firstLost() error {
	for peer, why := range r.lost {
		return fmt.Errorf("rank %d is lost: %w", peer, why)
	}
	return nil
}
