package carrier_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// sendOneWay sends messages from rank 0 to rank 1, one after the other.
func (r *rank) sendOneWay(n, size int) error {
	buf := make([]byte, size)
	for i := range n {
		q := &p2p.Request{Peer: 1 - r.Rank, Tag: int32(i), Buf: buf}
		switch r.Rank {
		case 0:
			if err := r.wait("credit", func() bool { return size > 1024 || r.CanSend(1, size) }); err != nil { // without credit it would fall back to rendezvous
				return err
			}
			r.engine.Isend(q)
		case 1:
			r.engine.Irecv(q)
		default:
			return nil
		}
		if err := r.waitAll(q); err != nil {
			return err
		}
	}
	return nil
}

// AckEvery packets are acknowledged together if no other packet carries the
// acknowledgement.
func TestAcknowledgementsAreCoalesced(t *testing.T) {
	const messages = 1000
	cfg := carrier.Config{Datagrams: carrier.Datagrams{AckDelay: time.Second, Timeout: time.Second}}
	runRanks(t, 2, setting{"softroce", carrier.UD, p2p.RGET, 0}, cfg, func(r *rank) error {
		must.Do(t, r.sendOneWay(messages, 100))
		s := r.Stats()
		if want := uint64(messages / 50); r.Rank == 1 && (s.AckOnly < want-1 || s.AckOnly > want+1) {
			return fmt.Errorf("%d acknowledgements for %d messages", s.AckOnly, messages)
		}
		if r.Rank == 0 && (s.Retransmitted != 0 || s.Packets[carrier.OverDatagrams] > messages+1) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// AllDelivered does not wait until a transport timer expires for writes to a ring that are unsignaled.
func TestDeliveryOfUnsignaledWritesIsAwaitedWithoutTimer(t *testing.T) {
	for _, d := range []carrier.Design{carrier.RingSRQ, carrier.RingSendRecv} {
		for messages := 40; messages < 56; messages++ {
			runRanks(t, 2, setting{"softroce", d, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
				buf := make([]byte, 100)
				for i := range messages {
					must.Do(t, r.waitAll(r.irecv(1-r.Rank, i, buf), r.isend(1-r.Rank, i, buf[:50])))
				}
				if r.Stats().Packets[carrier.OverRing] == 0 {
					return errors.New("no message was written to a ring")
				}
				began := r.Now()
				if err := r.wait("delivery", r.AllDelivered); err != nil || r.Now()-began > 10*time.Millisecond {
					return fmt.Errorf("%d messages: delivered after %v: %v", messages, r.Now()-began, err)
				}
				return nil
			})
		}
	}
}

// A sender has at most Window packets unacknowledged.
func TestWindowLimitsUnacknowledgedDatagrams(t *testing.T) {
	const messages, window = 200, 10
	cfg := carrier.Config{Datagrams: carrier.Datagrams{Window: window, AckEvery: window, AckDelay: time.Second, Timeout: time.Second}}
	runRanks(t, 2, setting{"softroce", carrier.UD, p2p.RGET, 0}, cfg, func(r *rank) error {
		if r.Rank == 1 {
			return r.sendOneWay(messages, 100)
		}
		var qs []*p2p.Request
		for i := range messages {
			qs = append(qs, r.isend(1, i, make([]byte, 100)))
		}
		if s := r.Stats(); s.Packets[carrier.OverDatagrams] > window {
			return fmt.Errorf("%d packets are unacknowledged", s.Packets[carrier.OverDatagrams])
		}
		return r.waitAll(qs...)
	})
}

// The retransmission timeout doubles up to a second, and the peer is lost after
// PeerTimeout.
func TestRetransmissionBacksOff(t *testing.T) {
	f := mpihost.Fabric{Ranks: 2, Script: func(w *mpihost.World) { w.At(time.Millisecond, func() { w.LinkDown(1, -1) }) }}
	s := setting{"softroce", carrier.UD, p2p.RGET, 0}
	out, _ := runOnFabric(f, s, carrier.Config{Waiting: carrier.Waiting{PeerTimeout: 10 * time.Second}}, func(r *rank) error {
		must.Do(t, r.wait("the link failure", func() bool { return r.Now() > 2*time.Millisecond }))
		r.engine.Isend(&p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 10)})
		q := r.irecv(1-r.Rank, 1, make([]byte, 10))
		if err := r.waitAll(q); err == nil {
			return errors.New("received a message")
		}
		// 20, 40, 80 … 640 ms, and then every second.
		if n, took := r.Stats().Retransmitted, r.Now(); n < 10 || n > 20 || took < 9*time.Second || took > 15*time.Second {
			return fmt.Errorf("%d retransmissions in %v", n, took)
		}
		return errDone
	})
	if err := out.Ranks[0].Err; !errors.Is(err, errDone) { // the other rank may see that its peer has ended
		t.Fatal(err)
	}
}

// A rank sends to another peer while it handles the loss of a peer. That packet has a
// retransmission timer too.
func TestPacketSentOnLossIsRetransmitted(t *testing.T) {
	const messages = 50
	f := mpihost.Fabric{Ranks: 3, Script: func(w *mpihost.World) { w.At(time.Millisecond, func() { w.LinkDown(1, -1) }) }}
	s := setting{"softroce", carrier.UD, p2p.RGET, 300_000}
	out, _ := runOnFabric(f, s, carrier.Config{Waiting: carrier.Waiting{PeerTimeout: time.Second}}, func(r *rank) error {
		switch r.Rank {
		case 0:
			r.onLost = func(int) {
				for i := range messages {
					r.engine.Isend(&p2p.Request{Peer: 2, Tag: int32(i), Buf: make([]byte, 10)})
				}
			}
			must.Do(t, r.wait("the link failure", func() bool { return r.Now() > 2*time.Millisecond }))
			r.engine.Isend(&p2p.Request{Peer: 1, Buf: make([]byte, 10)})
			must.Do(t, r.wait("the loss of rank 1", func() bool { return r.lost[1] != nil }))
			must.Do(t, r.wait("delivery", r.AllDelivered))
			if err := r.lost[2]; err != nil {
				return fmt.Errorf("rank 2 is lost: %w", err)
			}
		case 1:
			r.Proc.Sleep(time.Minute) // a peer that ends is lost without a timer
		case 2:
			var qs []*p2p.Request
			for i := range messages {
				qs = append(qs, r.irecv(0, i, make([]byte, 10)))
			}
			must.Do(t, r.waitAll(qs...))
			must.Do(t, r.wait("the end of rank 0", func() bool { return r.Control.Gone(0) })) // acknowledgements may be lost
		}
		return errDone
	})
	for _, k := range []int{0, 2} {
		if err := out.Ranks[k].Err; !errors.Is(err, errDone) {
			t.Errorf("rank %d: %v", k, err)
		}
	}
}

// sendEach makes every rank send to each other rank the given number of synchronous messages.
// Each takes one packet in either direction.
func (r *rank) sendEach(size int, messages func(from, to int) int) error {
	var qs []*p2p.Request
	for peer := range r.Size {
		if peer == r.Rank {
			continue
		}
		for i := range messages(peer, r.Rank) {
			qs = append(qs, r.irecv(peer, i, make([]byte, size)))
		}
	}
	for i, more := 0, true; more; i++ {
		more = false
		for peer := range r.Size {
			if peer != r.Rank && i < messages(r.Rank, peer) {
				q := &p2p.Request{Peer: peer, Tag: int32(i), Buf: pattern(size, i), Mode: p2p.Synchronous}
				r.engine.Isend(q)
				if err := r.waitAll(q); err != nil {
					return err
				}
				more = true
			}
		}
	}
	if err := r.waitAll(qs...); err != nil {
		return err
	}
	return r.barrier()
}

// Hybrid connects to busy peers only, and never exceeds the limit of connections. A rank whose peers
// have all reached the limit stays without one.
func TestHybridConnectsToBusyPeers(t *testing.T) {
	cfg := carrier.Config{HybridLimits: carrier.HybridLimits{HybridAfter: 40, HybridPeers: 2}}
	for _, loss := range []uint32{0, 20_000} {
		connected := 0
		runRanks(t, 6, setting{"softroce", carrier.Hybrid, p2p.RGET, loss}, cfg, func(r *rank) error {
			must.Do(t, r.sendEach(100, func(int, int) int { return 15 }))
			if s := r.Stats(); s.MaxConnections != 0 || s.Packets[carrier.OverConnection] != 0 {
				return fmt.Errorf("rank %d connects to a peer that is not busy: %+v", r.Rank, s)
			}
			must.Do(t, r.sendEach(100, func(int, int) int { return 100 }))
			s := r.Stats()
			if s.MaxConnections > 2 || s.MaxConnections == 0 {
				return fmt.Errorf("rank %d had %d connections at once", r.Rank, s.MaxConnections)
			}
			if s.Packets[carrier.OverConnection] > 0 {
				connected++
			}
			return nil
		})
		if connected < 4 {
			t.Errorf("with a loss of %d ppm, %d ranks of 6 sent over connections", loss, connected)
		}
	}
}

// The connection to the least used peer is closed for a peer that becomes the busiest.
func TestHybridEvictsLeastUsedConnection(t *testing.T) {
	cfg := carrier.Config{HybridLimits: carrier.HybridLimits{HybridAfter: 20, HybridPeers: 1}}
	runRanks(t, 3, setting{"softroce", carrier.Hybrid, p2p.RGET, 0}, cfg, func(r *rank) error {
		pairWith := func(peer int) func(int, int) int {
			return func(from, to int) int {
				if from+to == peer { // a pair with rank 0
					return 40
				}
				return 0
			}
		}
		must.Do(t, r.sendEach(100, pairWith(1)))
		before := r.Stats().Packets
		if r.Rank < 2 && before[carrier.OverConnection] == 0 {
			return fmt.Errorf("rank %d sent %v packets by transport", r.Rank, before)
		}
		for range 5 {
			must.Do(t, r.sendEach(100, pairWith(2)))
		}
		s := r.Stats()
		if r.Rank == 0 && (s.ConnectionsClosed != 1 || s.Connections != 1 || s.Packets[carrier.OverConnection]-before[carrier.OverConnection] < 40) {
			return fmt.Errorf("%d connections, %d closed; %v packets by transport, before %v", s.Connections, s.ConnectionsClosed, s.Packets, before)
		}
		return nil
	})
}

// A peer gets a ring after Ring.After packets, and at most Ring.Peers peers have one.
func TestRingIsOfferedAfterManyPackets(t *testing.T) {
	cfg := carrier.Config{Ring: carrier.Ring{After: 40, Peers: 2}}
	for _, d := range []carrier.Design{carrier.RingSendRecv, carrier.RingSRQ} {
		runRanks(t, 5, setting{"softroce", d, p2p.RGET, 0}, cfg, func(r *rank) error {
			must.Do(t, r.sendEach(100, func(int, int) int { return 10 }))
			if s := r.Stats(); s.Rings != 0 || s.Packets[carrier.OverRing] != 0 {
				return fmt.Errorf("%s: rank %d has %d rings after ten messages of each", d, r.Rank, s.Rings)
			}
			must.Do(t, r.sendEach(100, func(int, int) int { return 40 }))
			if s := r.Stats(); s.Rings != 2 || s.Memory.Now[memory.RingBuffers] == 0 {
				return fmt.Errorf("%s: rank %d has %d rings", d, r.Rank, s.Rings)
			}
			return nil
		})
	}
}

// Packets and transfers alternate between rails, and large transfers are striped.
func TestRailsShareTraffic(t *testing.T) {
	for _, size := range []int{700, 20_000, 400_000} {
		_, err := runOnFabric(mpihost.Fabric{Ranks: 2, Rails: 2}, setting{"softroce", carrier.SRQ, p2p.RPUT, 0}, carrier.Config{}, func(r *rank) error {
			if err := r.exchangeMessages(60, 100); err != nil { // connects both
				return err
			}
			before := r.Stats().ByRail
			must.Do(t, r.sendOneWay(40, size))
			s := r.Stats().ByRail
			for i := range s {
				s[i] -= before[i]
			}
			less, more := min(s[0], s[1]), max(s[0], s[1])
			if r.Rank == 0 && float64(less) < 0.9*float64(more) {
				return fmt.Errorf("messages of %d bytes by two rails: %v", size, s)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Shared receives reach the low watermark in a burst, but not in a ping-pong. Packets that
// find no receive are retransmitted and arrive.
func TestBurstReachesLowWatermark(t *testing.T) {
	cfg := carrier.Config{SharedReceives: 64, LowWatermark: 16, NoCoalescing: true}
	runRanks(t, 3, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, cfg, func(r *rank) error {
		must.Do(t, r.sendEach(100, func(int, int) int { return 200 }))
		if n := r.Stats().LowWatermark; n != 0 {
			return fmt.Errorf("rank %d: low watermark reached %d times in a ping-pong", r.Rank, n)
		}
		var qs []*p2p.Request
		for round, burst := range []int{40, 60, 150} {
			for i := range burst {
				q := &p2p.Request{Peer: 0, Tag: int32(round*1000 + i), Buf: pattern(100, i)}
				switch r.Rank {
				case 0:
					q.Peer = 1
					r.engine.Irecv(q)
				case 1:
					r.engine.Isend(q)
				default:
					continue
				}
				qs = append(qs, q)
			}
			if r.Rank == 0 { // it does not call Progress
				r.Env.Proc.Sleep(time.Millisecond)
			}
			must.Do(t, errors.Join(r.waitAll(qs...), r.barrier()))
			if n := r.Stats().LowWatermark; r.Rank == 0 && (n > 0) != (burst > 48) || r.Rank == 2 && n > 0 {
				return fmt.Errorf("rank %d: low watermark reached %d times in a burst of %d", r.Rank, n, burst)
			}
		}
		return nil
	})
}

// Duplicate packets are dropped by their sequence numbers.
func TestDuplicatesAreDropped(t *testing.T) {
	f := mpihost.Fabric{Ranks: 2, Impair: []impair.Spec{{DuplicatePPM: 1_000_000}}}
	_, err := runOnFabric(f, setting{"softroce", carrier.UD, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		must.Do(t, r.exchangeMessages(100, 100))
		if s := r.Stats(); s.Duplicates < 100 || s.OutOfOrder > s.Duplicates/4 {
			return fmt.Errorf("%d duplicate and %d out-of-order packets", s.Duplicates, s.OutOfOrder)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Unreliable datagram-iWARP uses the acknowledgements of the carrier and no connection
// manager. Every design becomes UD.
func TestUnreliableDatagramIWARPIsMadeReliable(t *testing.T) {
	for _, design := range []carrier.Design{carrier.UD, carrier.SRQ} {
		f := mpihost.Fabric{Ranks: 2, Unreliable: true}
		_, err := runOnFabric(f, setting{"dgiwarp", design, p2p.RGET, 20_000}, carrier.Config{}, func(r *rank) error {
			for _, size := range []int{100, 30_000} {
				must.Do(t, r.exchangeMessages(60, size))
			}
			if s := r.Stats(); s.Retransmitted == 0 || s.MaxConnections != 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", design, err)
		}
	}
}

// A datagram of iWARP is as long as a packet of the carrier: the NIC segments it.
func TestDatagramsOfIWARPExceedTheMTU(t *testing.T) {
	const size = 60_000
	cfg := carrier.Config{PacketSize: 64 << 10}
	f := mpihost.Fabric{Ranks: 2, Unreliable: true}
	must.Get(runOnFabric(f, setting{"dgiwarp", carrier.UD, p2p.RGET, 0}, cfg, func(r *rank) error {
		if r.Rank == 0 {
			must.Do(t, r.waitAll(r.isend(1, 0, pattern(size, 1))))
			if s := r.Stats(); s.Pieces != 1 {
				t.Errorf("%d packets with data", s.Pieces)
			}
			return nil
		}
		into := make([]byte, size)
		must.Do(t, r.waitAll(r.irecv(0, 0, into)))
		if !bytes.Equal(into, pattern(size, 1)) {
			return errors.New("the data is wrong")
		}
		return nil
	}))(t)
}
