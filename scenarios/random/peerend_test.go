package random_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

var errEnded = errors.New("the peer has ended")

// endingExchange is an Exchange whose peer ends at a given time.
type endingExchange struct {
	traffic.Exchange
	world *sim.World
	until time.Duration
}

func (m *endingExchange) Recv(timeout time.Duration) ([]byte, error) {
	if time.Duration(m.world.Now()) >= m.until {
		return nil, errEnded
	}
	return m.Exchange.Recv(timeout)
}

// With DetectPeerEnd an end fails when its peer has ended; without, it waits for ever. Both
// call OnStep meanwhile.
func TestDetectPeerEndEndsRun(t *testing.T) {
	for _, detect := range []bool{true, false} {
		w := newWorld(t, 1, impair.Spec{})
		work := &random.Workload{Seed: 1, CQs: 1, Conns: []random.Conn{random.NewConn(random.RC, 5000, 3000)}}
		var pipes [2]traffic.Exchange
		pipes[0], pipes[1] = sim.Pipe(w.World)
		const endTime = 300 * time.Microsecond
		pipes[0] = &endingExchange{pipes[0], w.World, endTime}
		var ends [2]*random.End
		steps, maxPosted := 0, 0
		for side := range random.Side(2) {
			env := random.Env{Device: w.devices[side], Peer: pipes[side], DetectPeerEnd: detect}
			if side == random.A {
				env.OnStep = func() {
					steps++
					maxPosted = max(maxPosted, ends[0].Result().Conns[0].Sent.Posted)
				}
			}
			var err error
			if ends[side], err = random.NewEnd(env, work, side); err != nil {
				t.Fatal(err)
			}
		}
		// B is paused at endTime, and posts no more receives.
		w.Go("A", func(p *sim.Proc) error {
			_, err := ends[0].Run(p)
			return err
		})
		b := w.Go("B", func(p *sim.Proc) error {
			_, err := ends[1].Run(p)
			return err
		})
		w.AfterFunc(endTime, b.Pause)
		err := w.RunUntil(1e9)
		if detect != errors.Is(err, errEnded) {
			t.Errorf("DetectPeerEnd %v: run = %v", detect, err)
		}
		if steps == 0 || maxPosted == 0 {
			t.Errorf("%d steps, %d requests posted", steps, maxPosted)
		}
		w.Close()
	}
}

// newSmallBufferWorld connects two soft-iWARP devices with small send buffers, which delay
// responses.
func newSmallBufferWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	c := cable{stream: sim.StreamConfig{BufferBytes: 4096}, link: sim.LinkConfig{RateBps: 1e8, Latency: time.Microsecond}}
	return newPair(t, seed, c, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := softiwarp.Config{Name: name}
		cfg.NIC.MPA.QueueOctets = 4096
		return softiwarp.InWorld(w, p, p.StreamHost(), cfg)
	})
}

// An atomic that is queued after a read response executes after a later message has arrived.
// Without the trait AtomicsAfterLaterWrites that is a violation.
func TestIWARPAtomicsMayExecuteAfterLaterMessages(t *testing.T) {
	for _, late := range []bool{true, false} {
		violations := 0
		for seed := range uint64(4) {
			w := newSmallBufferWorld(t, seed)
			work := connections(t, w.devices[0], seed, 200)
			if !work.Traits.AtomicsAfterLaterWrites {
				t.Fatal("TraitsOf lacks AtomicsAfterLaterWrites")
			}
			work.Traits.AtomicsAfterLaterWrites = late
			for i := range work.Conns {
				work.Conns[i].Mix = []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpSend}
			}
			_, err := w.run(t, work)
			var v *random.Violation
			if errors.As(err, &v) {
				violations++
				t.Log(v)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if (violations > 0) == late {
			t.Errorf("AtomicsAfterLaterWrites %v: %d of 4 runs with violations", late, violations)
		}
	}
}

// newShortTimeoutWorld connects two devices by a cable with a delay longer than their
// timeouts. It neither reorders nor loses packets: all duplicates are retransmissions.
func newShortTimeoutWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	c := cable{link: sim.LinkConfig{RateBps: 1e9, Latency: 20 * time.Microsecond, TxQueueBytes: 8192}}
	return newPair(t, seed, c, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := softroce.Config{Name: name}
		cfg.NIC.Policy.UnlimitedRetries = true
		return softroce.InWorld(w, p, p, cfg)
	})
}

// A requester with a short timeout retransmits READs that are being answered, and later
// invalidates their windows. The retransmissions arrive before the SEND_INV, and must not
// be errors.
func TestPlansTolerateSpuriousRetransmission(t *testing.T) {
	for seed := range uint64(40) {
		work := &random.Workload{Seed: seed, CQs: 1, SharedWords: 2}
		for range 2 {
			l := random.NewConn(random.RC, 100, 16<<10)
			l.Timeout, l.Windows, l.SignalEvery = 3+uint8(seed%4), 16, 1 // 33 µs to 0.26 ms
			l.Mix = append(l.Mix, verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpSendInv)
			work.Conns = append(work.Conns, l)
		}
		results, err := newShortTimeoutWorld(t, seed).run(t, work)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range results {
			if counter(r, "duplicate_request") == 0 {
				t.Errorf("seed %d: no request was retransmitted", seed)
			}
		}
	}
}

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// pipe is an end of an Exchange between goroutines.
type pipe struct{ out, in chan []byte }

func (p pipe) Send(msg []byte) error {
	p.out <- msg
	return nil
}

func (p pipe) Recv(timeout time.Duration) ([]byte, error) {
	select {
	case msg := <-p.in:
		return msg, nil
	case <-time.After(timeout):
		return nil, verbs.ErrTimeout
	}
}

// The programs of the simulated world run unchanged in real time, on loopback sockets.
func TestWorkloadRunsInRealTime(t *testing.T) {
	work := everyService()
	work.Network = random.Network{Loses: true} // a socket buffer may overflow
	for i := range work.Conns {
		l := &work.Conns[i]
		l.Messages = [2]int{60, 60}
		l.Timeout = 14 // 67 ms: the machine may be busy
	}
	ab, ba := make(chan []byte, 100), make(chan []byte, 100)
	pipes := []pipe{{ab, ba}, {ba, ab}}
	errs := make(chan error, 2)
	for side, addr := range []string{"127.72.0.2", "127.72.0.3"} {
		d, err := softroce.OnUDP(udplink.Config{}, softroce.Config{Name: addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		end, err := random.NewEnd(random.Env{Device: d, Peer: pipes[side], Concurrent: true, StallTimeout: 20 * time.Second}, work, random.Side(side))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := end.Run(traffic.RealTime())
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// An end whose peer never connects fails, and reports what it waits for.
func TestEndWithoutPeerStalls(t *testing.T) {
	d, err := softroce.OnUDP(udplink.Config{}, softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("127.72.0.4")}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	end, err := random.NewEnd(random.Env{Device: d, Peer: pipe{out: make(chan []byte, 100)}, StallTimeout: 10 * time.Millisecond}, everyService(), random.A)
	if err != nil {
		t.Fatal(err)
	}
	_, err = end.Run(traffic.RealTime())
	expectStall(t, err, "waits for the control message info")
}
