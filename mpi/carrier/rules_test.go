package carrier_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// oneWay has rank 0 send messages to rank 1, one behind the other, which rank 1 only
// receives.
func (r *rank) oneWay(n, size int) error {
	buf := make([]byte, size)
	for i := range n {
		q := &p2p.Request{Peer: 1 - r.Rank, Tag: int32(i), Buf: buf}
		switch r.Rank {
		case 0:
			if err := r.wait("room", func() bool { return size > 1024 || r.CanSend(1, size) }); err != nil { // lest it falls back to rendezvous
				return err
			}
			r.engine.Isend(q)
		case 1:
			r.engine.Irecv(q)
		default:
			return nil
		}
		if err := r.finish(q); err != nil {
			return err
		}
	}
	return nil
}

// Of datagrams one in fifty is acknowledged, if nothing goes the other way that could say
// so; and no more are under way than there may be.
func TestOneAcknowledgementForFifty(t *testing.T) {
	const messages = 1000
	cfg := carrier.Config{Datagrams: carrier.Datagrams{AckDelay: time.Second, Timeout: time.Second}}
	in(t, 2, setting{"softroce", carrier.UD, p2p.RGET, 0}, cfg, func(r *rank) error {
		if err := r.oneWay(messages, 100); err != nil {
			return err
		}
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

// Who waits for more than the window gets it acknowledged when that takes long: then it
// waits for acknowledgements, however few there may be.
func TestDatagramsUnderWayAreLimited(t *testing.T) {
	const messages, window = 200, 10
	cfg := carrier.Config{Datagrams: carrier.Datagrams{Window: window, AckEvery: window, AckDelay: time.Second, Timeout: time.Second}}
	in(t, 2, setting{"softroce", carrier.UD, p2p.RGET, 0}, cfg, func(r *rank) error {
		if r.Rank == 1 {
			return r.oneWay(messages, 100)
		}
		var qs []*p2p.Request
		for i := range messages {
			q := &p2p.Request{Peer: 1, Tag: int32(i), Buf: make([]byte, 100)}
			r.engine.Isend(q)
			qs = append(qs, q)
		}
		if s := r.Stats(); s.Packets[carrier.OverDatagrams] > window {
			return fmt.Errorf("%d packets are under way", s.Packets[carrier.OverDatagrams])
		}
		return r.finish(qs...)
	})
}

// Who does not answer is asked again, less and less often, and is lost in the end.
func TestRepetitionsBecomeRare(t *testing.T) {
	f := mpihost.Fabric{Ranks: 2, Script: func(w *mpihost.World) { w.At(time.Millisecond, func() { w.Cut(1, -1) }) }}
	s := setting{"softroce", carrier.UD, p2p.RGET, 0}
	out, _ := try(f, s, carrier.Config{PeerTimeout: 10 * time.Second}, func(r *rank) error {
		if err := r.wait("the cut", func() bool { return r.Now() > 2*time.Millisecond }); err != nil {
			return err
		}
		r.engine.Isend(&p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 10)})
		q := &p2p.Request{Peer: 1 - r.Rank, Tag: 1, Buf: make([]byte, 10)}
		r.engine.Irecv(q)
		if err := r.finish(q); err == nil {
			return errors.New("something came")
		}
		// 20, 40, 80 … 640 ms, and then every second.
		if n, took := r.Stats().Retransmitted, r.Now(); n < 10 || n > 20 || took < 9*time.Second || took > 15*time.Second {
			return fmt.Errorf("asked %d times in %v", n, took)
		}
		return errDone
	})
	if err := out.Ranks[0].Err; !errors.Is(err, errDone) { // the other may learn that it has ended
		t.Fatal(err)
	}
}

// A rank that learns of the loss of a peer from the retransmission timer sends to
// another at once. That packet has a retransmission timer too.
func TestPacketSentOnLossIsRetransmitted(t *testing.T) {
	const messages = 50
	f := mpihost.Fabric{Ranks: 3, Script: func(w *mpihost.World) { w.At(time.Millisecond, func() { w.Cut(1, -1) }) }}
	s := setting{"softroce", carrier.UD, p2p.RGET, 300_000}
	out, _ := try(f, s, carrier.Config{PeerTimeout: time.Second}, func(r *rank) error {
		switch r.Rank {
		case 0:
			r.onLost = func(int) {
				for i := range messages {
					r.engine.Isend(&p2p.Request{Peer: 2, Tag: int32(i), Buf: make([]byte, 10)})
				}
			}
			if err := r.wait("the cut", func() bool { return r.Now() > 2*time.Millisecond }); err != nil {
				return err
			}
			r.engine.Isend(&p2p.Request{Peer: 1, Buf: make([]byte, 10)})
			if err := r.wait("the loss of rank 1", func() bool { return r.lost[1] != nil }); err != nil {
				return err
			}
			if err := r.wait("quiet", r.AllDelivered); err != nil {
				return err
			}
			if err := r.lost[2]; err != nil {
				return fmt.Errorf("rank 2 is lost: %w", err)
			}
		case 1:
			r.Proc.Sleep(time.Minute) // one that ends is lost without a timer
		case 2:
			var qs []*p2p.Request
			for i := range messages {
				q := &p2p.Request{Peer: 0, Tag: int32(i), Buf: make([]byte, 10)}
				r.engine.Irecv(q)
				qs = append(qs, q)
			}
			if err := r.finish(qs...); err != nil {
				return err
			}
			if err := r.wait("quiet", r.AllDelivered); err != nil {
				return err
			}
		}
		return errDone
	})
	for _, k := range []int{0, 2} {
		if err := out.Ranks[k].Err; !errors.Is(err, errDone) {
			t.Errorf("rank %d: %v", k, err)
		}
	}
}

// talk has every rank send each other as many messages as is said of the two, and wait
// for each to be received: so that for each two packets go, one either way.
func (r *rank) talk(size int, messages func(from, to int) int) error {
	var qs []*p2p.Request
	for peer := range r.Size {
		if peer == r.Rank {
			continue
		}
		for i := range messages(peer, r.Rank) {
			q := &p2p.Request{Peer: peer, Tag: int32(i), Buf: make([]byte, size)}
			r.engine.Irecv(q)
			qs = append(qs, q)
		}
	}
	for i, left := 0, true; left; i++ {
		left = false
		for peer := range r.Size {
			if peer != r.Rank && i < messages(r.Rank, peer) {
				q := &p2p.Request{Peer: peer, Tag: int32(i), Buf: pattern(size, i), Mode: p2p.Synchronous}
				r.engine.Isend(q)
				if err := r.finish(q); err != nil {
					return err
				}
				left = true
			}
		}
	}
	if err := r.finish(qs...); err != nil {
		return err
	}
	return r.meet()
}

// Of peers that are reached by datagrams those have a connection that much is said to,
// and never more than there may be, whoever asks for it.
func TestFavouredPeers(t *testing.T) {
	cfg := carrier.Config{HybridAfter: 40, HybridPeers: 2}
	for _, loss := range []uint32{0, 20_000} {
		in(t, 6, setting{"softroce", carrier.Hybrid, p2p.RGET, loss}, cfg, func(r *rank) error {
			if err := r.talk(100, func(int, int) int { return 15 }); err != nil {
				return err
			}
			if s := r.Stats(); s.MaxConnections != 0 || s.Packets[carrier.OverConnection] != 0 {
				return fmt.Errorf("rank %d connects to somebody whom it hardly talks with: %+v", r.Rank, s)
			}
			if err := r.talk(100, func(int, int) int { return 100 }); err != nil {
				return err
			}
			s := r.Stats()
			if s.MaxConnections > 2 || s.MaxConnections == 0 || s.Packets[carrier.OverConnection] == 0 {
				return fmt.Errorf("rank %d had %d connections at once, and sent %v packets by way", r.Rank, s.MaxConnections, s.Packets)
			}
			return nil
		})
	}
}

// A peer that becomes the busiest takes the place of one that is not.
func TestTheBusiestTakesTheirPlace(t *testing.T) {
	cfg := carrier.Config{HybridAfter: 20, HybridPeers: 1}
	in(t, 3, setting{"softroce", carrier.Hybrid, p2p.RGET, 0}, cfg, func(r *rank) error {
		with := func(peer int) func(int, int) int {
			return func(from, to int) int {
				if from+to == peer { // of rank 0's pairs
					return 40
				}
				return 0
			}
		}
		if err := r.talk(100, with(1)); err != nil {
			return err
		}
		before := r.Stats().Packets
		if r.Rank < 2 && before[carrier.OverConnection] == 0 {
			return fmt.Errorf("rank %d sent %v packets by way", r.Rank, before)
		}
		for range 5 {
			if err := r.talk(100, with(2)); err != nil {
				return err
			}
		}
		s := r.Stats()
		if r.Rank == 0 && (s.ConnectionsClosed != 1 || s.Connections != 1 || s.Packets[carrier.OverConnection]-before[carrier.OverConnection] < 40) {
			return fmt.Errorf("%d connections, %d given back; %v packets by way, before %v", s.Connections, s.ConnectionsClosed, s.Packets, before)
		}
		return nil
	})
}

// Peers have a ring when so many packets have come from them, and only so many have.
func TestRingsAreForTheBusy(t *testing.T) {
	cfg := carrier.Config{Ring: carrier.Ring{After: 40, Peers: 2}}
	for _, d := range []carrier.Design{carrier.RingSendRecv, carrier.RingSRQ} {
		in(t, 5, setting{"softroce", d, p2p.RGET, 0}, cfg, func(r *rank) error {
			if err := r.talk(100, func(int, int) int { return 10 }); err != nil {
				return err
			}
			if s := r.Stats(); s.Rings != 0 || s.Packets[carrier.OverRing] != 0 {
				return fmt.Errorf("%s: rank %d has %d rings after ten messages of each", d, r.Rank, s.Rings)
			}
			if err := r.talk(100, func(int, int) int { return 40 }); err != nil {
				return err
			}
			if s := r.Stats(); s.Rings != 2 || s.Memory.Now[carrier.RingBuffers] == 0 {
				return fmt.Errorf("%s: rank %d has %d rings", d, r.Rank, s.Rings)
			}
			return nil
		})
	}
}

// Packets take rails in turn, and large data is divided among them; what is smaller than
// that is worth goes by one.
func TestRailsShareTheWork(t *testing.T) {
	for _, c := range []struct {
		size   int
		shared bool // evenly
	}{{700, true}, {20_000, false}, {400_000, true}} {
		_, err := try(mpihost.Fabric{Ranks: 2, Rails: 2}, setting{"softroce", carrier.SRQ, p2p.RPUT, 0}, carrier.Config{}, func(r *rank) error {
			if err := r.volley(60, 100); err != nil { // so that both are connected
				return err
			}
			before := r.Stats().ByRail
			if err := r.oneWay(40, c.size); err != nil {
				return err
			}
			s := r.Stats().ByRail
			for i := range s {
				s[i] -= before[i]
			}
			less, more := min(s[0], s[1]), max(s[0], s[1])
			if r.Rank == 0 && (float64(less) > 0.9*float64(more)) != c.shared {
				return fmt.Errorf("messages of %d bytes by two rails: %v", c.size, s)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Shared receives run low when a rank does not attend to what comes, and not in a
// conversation, however long. What finds none left comes all the same.
func TestSharedReceivesRunLow(t *testing.T) {
	cfg := carrier.Config{SharedReceives: 64, LowWatermark: 16, NoCoalescing: true}
	in(t, 3, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, cfg, func(r *rank) error {
		if err := r.talk(100, func(int, int) int { return 200 }); err != nil {
			return err
		}
		if n := r.Stats().LowWatermark; n != 0 {
			return fmt.Errorf("rank %d: receives ran low %d times in a conversation", r.Rank, n)
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
			if r.Rank == 0 { // is busy
				r.Env.Proc.Sleep(time.Millisecond)
			}
			if err := errors.Join(r.finish(qs...), r.meet()); err != nil {
				return err
			}
			if n := r.Stats().LowWatermark; r.Rank == 0 && (n > 0) != (burst > 48) || r.Rank == 2 && n > 0 {
				return fmt.Errorf("rank %d: receives ran low %d times in a burst of %d", r.Rank, n, burst)
			}
		}
		return nil
	})
}

// Packets that come twice are known by their numbers, and kept by nobody.
func TestDuplicatesAreDropped(t *testing.T) {
	f := mpihost.Fabric{Ranks: 2, Impair: []impair.Spec{{DuplicatePPM: 1_000_000}}}
	_, err := try(f, setting{"softroce", carrier.UD, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		if err := r.volley(100, 100); err != nil {
			return err
		}
		if s := r.Stats(); s.Duplicates < 100 || s.OutOfOrder > s.Duplicates/4 {
			return fmt.Errorf("%d packets came again, and %d before their turn", s.Duplicates, s.OutOfOrder)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Datagram-iWARP that loses what it is given is made reliable as other datagrams are, and
// needs no connection manager. It knows one design only, whatever is asked for.
func TestUnreliableDatagramIWARP(t *testing.T) {
	for _, design := range []carrier.Design{carrier.UD, carrier.SRQ} {
		f := mpihost.Fabric{Ranks: 2, Unreliable: true}
		_, err := try(f, setting{"dgiwarp", design, p2p.RGET, 20_000}, carrier.Config{}, func(r *rank) error {
			for _, size := range []int{100, 30_000} {
				if err := r.volley(60, size); err != nil {
					return err
				}
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
