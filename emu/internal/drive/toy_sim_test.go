package drive_test

import (
	"errors"
	"hash/crc64"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// simToys is two toys in a simulated world.
type simToys struct {
	w            *sim.World
	a, b         *toy
	da, db       *sim.StreamDriver
	pa, pb       *sim.Port
	addrA, addrB netip.AddrPort
}

func newSimToys(tb testing.TB, cfg sim.Config, stream sim.StreamConfig) *simToys {
	tb.Helper()
	w := sim.New(cfg)
	tb.Cleanup(w.Close)
	s := &simToys{
		w: w, a: newToy(), b: newToy(),
		addrA: netip.MustParseAddrPort("[fd00::1]:0"), addrB: netip.MustParseAddrPort("[fd00::2]:7"),
	}
	l := sim.LinkConfig{RateBps: 10e9, Latency: 5 * time.Microsecond, MTU: 1500}
	var err error
	s.pa, s.pb, err = sim.NewPair(w, sim.NetConfig{Stream: stream},
		sim.PortConfig{Addrs: []netip.Addr{s.addrA.Addr()}, Link: l}, sim.PortConfig{Addrs: []netip.Addr{s.addrB.Addr()}, Link: l})
	if err != nil {
		tb.Fatal(err)
	}
	start := func(t *toy, p *sim.Port) *sim.StreamDriver {
		d := sim.NewStreamDriver(t, p.StreamHost(), sim.DriverConfig{Port: p, Costs: sim.DefaultCosts(), Observer: noObserver{}})
		t.start(d)
		return d
	}
	s.da, s.db = start(s.a, s.pa), start(s.b, s.pb)
	return s
}

// noObserver ignores changes of the port.
type noObserver struct{}

func (noObserver) LinkChanged(bool)             {}
func (noObserver) AddrChanged(netip.Addr, bool) {}

func (s *simToys) run(tb testing.TB, program func(p *sim.Proc)) {
	tb.Helper()
	s.w.Go("program", func(p *sim.Proc) error { program(p); return nil })
	must.Do(tb, s.w.Run())
}

func newClient(seed uint64, messages, maxSize int) *toyConn {
	return &toyConn{rng: rand.New(rand.NewPCG(seed, 1)), messages: messages, maxSize: maxSize, window: 20_000}
}

// runClients runs four clients in a to the end, and returns a checksum of the world's
// trace.
func runClients(tb testing.TB, seed uint64, stream sim.StreamConfig) (s *simToys, trace uint64) {
	tb.Helper()
	sum := crc64.New(crc64.MakeTable(crc64.ISO))
	s = newSimToys(tb, sim.Config{Seed: seed, Trace: sum}, stream)
	s.run(tb, func(*sim.Proc) {
		must.Get(s.b.echo(s.addrB))(tb)
		for i := range 4 {
			c := newClient(seed+uint64(i), 800, 1500)
			if i == 2 {
				c.interval = 20 * time.Microsecond
			}
			if i == 3 {
				c.abortAt = 200_000
			}
			must.Do(tb, s.a.dial(s.addrA, s.addrB, c))
		}
		if !s.a.waitUntil(time.Minute, s.a.allFinished) || !s.b.waitUntil(time.Minute, s.b.allFinished) {
			tb.Error("not all conns finished in a minute")
		}
	})
	must.Do(tb, errors.Join(s.a.check(), s.b.check()))
	if open := s.da.OpenStreams() + s.db.OpenStreams(); open != 0 {
		tb.Errorf("the drivers hold %d streams", open)
	}
	return s, sum.Sum64()
}

func TestSimulatedStreamsCarryMessages(t *testing.T) {
	for name, cfg := range map[string]sim.StreamConfig{
		"clean":        {},
		"small buffer": {BufferBytes: 3000},
		"split writes": {CutPPM: 500_000},
		"stalled":      {StallPPM: 50_000, StallFor: time.Millisecond, CutPPM: 100_000, BufferBytes: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := runClients(t, 3, cfg)
			for i, c := range s.a.conns {
				if c.err != nil || c.mss != 1500-40-32 || c.got == 0 {
					t.Errorf("conn %d: %v, %d bytes, MSS %d", i, c.err, c.got, c.mss)
				}
			}
			if s.a.ticks < 50 {
				t.Errorf("%d ticks", s.a.ticks)
			}
			if c := s.a.conns[3]; !c.abort || !errors.Is(s.b.conns[3].err, link.ErrReset) {
				t.Errorf("the aborted conn: the other end got %v", s.b.conns[3].err)
			}
		})
	}
}

func TestSimulatedStreamsReconnectAfterReset(t *testing.T) {
	broken := 0
	for seed := range uint64(5) {
		s := newSimToys(t, sim.Config{Seed: seed}, sim.StreamConfig{CutPPM: 300_000, ResetPPM: 500})
		s.run(t, func(*sim.Proc) {
			must.Get(s.b.echo(s.addrB))(t)
			for messages, tries := 1500, 0; messages > 0 && tries < 100; tries++ {
				c := newClient(seed, messages, 3000)
				must.Do(t, s.a.dial(s.addrA, s.addrB, c))
				if !s.a.waitUntil(time.Minute, c.finished) {
					t.Fatal("the stream neither closed nor failed")
				}
				if messages = c.messages; c.err != nil {
					broken++
				}
			}
		})
		if err := errors.Join(s.a.check(), s.b.check()); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if broken < 5 {
		t.Errorf("%d streams were reset, want at least 5", broken)
	}
}

func TestSimulatedStreamsAreDeterministic(t *testing.T) {
	cfg := sim.StreamConfig{CutPPM: 300_000, StallPPM: 10_000, StallFor: time.Millisecond}
	_, one := runClients(t, 7, cfg)
	_, again := runClients(t, 7, cfg)
	_, other := runClients(t, 8, cfg)
	if one != again {
		t.Errorf("seed 7: %x, then %x", one, again)
	}
	if one == other {
		t.Error("seeds 7 and 8 gave the same trace")
	}
}

func TestSimulatedStreamsReportDialErrors(t *testing.T) {
	s := newSimToys(t, sim.Config{}, sim.StreamConfig{})
	s.run(t, func(*sim.Proc) {
		c := newClient(1, 1, 10)
		must.Do(t, s.a.dial(s.addrA, s.addrB, c))
		if err := s.da.Dial(c, s.addrA, s.addrB); err == nil {
			t.Error("a conn could be dialed twice")
		}
		if !s.a.waitUntil(time.Second, c.finished) || !errors.Is(c.err, link.ErrRefused) || c.connected {
			t.Errorf("no listener: %v", c.err)
		}
		s.b.rejectStreams = true
		l := must.Get(s.b.echo(s.addrB))(t)
		c = newClient(1, 1, 10)
		must.Do(t, s.a.dial(s.addrA, s.addrB, c))
		if !s.a.waitUntil(time.Second, c.finished) || !errors.Is(c.err, link.ErrReset) {
			t.Errorf("rejected by accept: %v", c.err)
		}
		must.Do(t, l.Close())
		must.Fail(t, "second Close", l.Close(), link.ErrClosed)
		must.Fail(t, "no such host", s.a.dial(s.addrA, netip.MustParseAddrPort("[fd00::9]:7"), newClient(1, 1, 1)), link.ErrUnreachable)
	})
}

// The streams of a frozen host stop, and continue after Thaw.
func TestStreamsOfFrozenHostStop(t *testing.T) {
	s := newSimToys(t, sim.Config{}, sim.StreamConfig{BufferBytes: 10_000})
	s.run(t, func(p *sim.Proc) {
		must.Get(s.b.echo(s.addrB))(t)
		c := newClient(1, 300, 3000)
		must.Do(t, s.a.dial(s.addrA, s.addrB, c))
		p.Sleep(100 * time.Microsecond)
		s.pb.Freeze()
		got := s.b.conns[0].got
		late := newClient(2, 10, 100) // dialed while the host cannot accept
		must.Do(t, s.a.dial(s.addrA, s.addrB, late))
		p.Sleep(time.Second)
		if s.b.conns[0].got != got || s.b.accepted != 1 || c.finished() {
			t.Errorf("a frozen host received %d bytes and has %d streams", s.b.conns[0].got-got, s.b.accepted)
		}
		s.pb.Thaw()
		if !s.a.waitUntil(time.Second, s.a.allFinished) {
			t.Error("the streams did not continue")
		}
	})
	if err := errors.Join(s.a.check(), s.b.check()); err != nil || len(s.a.conns) != 2 {
		t.Error(err)
	}
}
