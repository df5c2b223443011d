package carrier_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// testGroup is the id of the group of all ranks.
const testGroup = 7

// multicastAll makes each rank multicast messages of many sizes, and checks those of every other rank.
func (r *rank) multicastAll(messages int) error {
	var others []int
	for peer := range r.Size {
		if peer != r.Rank {
			others = append(others, peer)
		}
	}
	r.JoinGroup(testGroup, others)
	size := func(i int) int { return i * 37 % (r.MaxMulticast() + 1) }
	var qs []*p2p.Request
	into := make(map[int][][]byte)
	for _, peer := range others {
		for i := range messages {
			into[peer] = append(into[peer], make([]byte, size(i)))
			qs = append(qs, r.irecv(peer, 1, into[peer][i]))
			r.ExpectMulticast(testGroup, peer)
		}
	}
	for i := range messages {
		if err := r.wait("room", func() bool { return r.CanMulticast(testGroup) }); err != nil {
			return err
		}
		r.Multicast(testGroup, &wire.Header{Kind: wire.Eager, Tag: 1}, pattern(size(i), r.Rank*1000+i))
	}
	if err := r.waitAll(qs...); err != nil {
		return err
	}
	for _, peer := range others {
		for i, b := range into[peer] {
			if !bytes.Equal(b, pattern(size(i), peer*1000+i)) {
				return fmt.Errorf("rank %d: message %d of rank %d is wrong", r.Rank, i, peer)
			}
		}
	}
	r.LeaveGroup(testGroup)
	return r.wait("the end of the group", func() bool { return r.Groups() == 0 })
}

// Multicast messages of all ranks arrive once and in order, also at ranks of one host, at one that joins late, and if
// there are fewer receives than packets in flight. Afterwards no rank keeps any.
func TestMulticastsArrive(t *testing.T) {
	few := carrier.Config{NoSharedMemory: true, Datagrams: carrier.Datagrams{Receives: 24, Window: 16}}
	for _, c := range []struct {
		setting
		cfg      carrier.Config
		perHost  int
		ipv4     bool
		reorders bool
	}{
		{setting{"softroce", carrier.RingSRQ, p2p.RGET, 0}, carrier.Config{}, 1, false, false},
		{setting{"softroce", carrier.UD, p2p.RGET, 20_000}, carrier.Config{}, 1, true, false},
		{setting{"softroce", carrier.SRQ, p2p.RGET, 200_000}, carrier.Config{}, 2, false, true},
		{setting{"softroce", carrier.Hybrid, p2p.RGET, 0}, few, 2, true, true},
	} {
		t.Run(fmt.Sprintf("%v/%d per host/reorders=%v", c.setting, c.perHost, c.reorders), func(t *testing.T) {
			f := mpihost.Fabric{Ranks: 4, PerHost: c.perHost, IPv4: c.ipv4}
			if c.reorders {
				f.Impair = []impair.Spec{{
					LossPPM: c.loss, DuplicatePPM: 100_000, DuplicateDelay: time.Microsecond, ReorderPPM: 100_000, ReorderDelay: 20 * time.Microsecond,
				}}
				c.loss = 0
			}
			must.Get(runOnFabric(f, c.setting, c.cfg, func(r *rank) error {
				if r.Rank == 3 {
					r.Proc.Sleep(30 * time.Millisecond)
				}
				return r.multicastAll(200)
			}))(t)
		})
	}
}

// Only NICs with unreliable datagrams have multicast.
func TestMulticastNeedsNICWithMulticast(t *testing.T) {
	for _, s := range []setting{{"softroce", carrier.UD, p2p.RGET, 0}, {"softiwarp", carrier.SRQ, p2p.RGET, 0}, {"dgiwarp", carrier.UD, p2p.RGET, 0}} {
		runRanks(t, 2, s, carrier.Config{}, func(r *rank) error {
			if has := r.MaxMulticast() > 0; has != (s.provider == "softroce") {
				t.Errorf("%s: multicast messages of up to %d bytes", s.provider, r.MaxMulticast())
			}
			return nil
		})
	}
}
