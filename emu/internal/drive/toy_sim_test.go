package drive_test

import (
	"errors"
	"hash/crc64"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/simdrive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// simulated is two toys in a world.
type simulated struct {
	w            *sim.World
	a, b         *toy
	da, db       *simdrive.StreamDriver
	pa, pb       *sim.Port
	addrA, addrB netip.AddrPort
}

func inWorld(tb testing.TB, cfg sim.Config, stream sim.StreamConfig) *simulated {
	tb.Helper()
	w := sim.New(cfg)
	tb.Cleanup(w.Close)
	s := &simulated{
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
	start := func(t *toy, p *sim.Port) *simdrive.StreamDriver {
		d := simdrive.NewStreams(w, t, p.StreamHost(), p, simdrive.DefaultCosts(), deaf{})
		t.start(d)
		return d
	}
	s.da, s.db = start(s.a, s.pa), start(s.b, s.pb)
	return s
}

// deaf does not care what becomes of its port.
type deaf struct{}

func (deaf) LinkChanged(bool)             {}
func (deaf) AddrChanged(netip.Addr, bool) {}

func (s *simulated) run(tb testing.TB, program func(p *sim.Proc)) {
	tb.Helper()
	s.w.Go("program", func(p *sim.Proc) error { program(p); return nil })
	if err := s.w.Run(); err != nil {
		tb.Fatal(err)
	}
}

func speaker(seed uint64, messages, largest int) *toyConn {
	return &toyConn{rng: rand.New(rand.NewPCG(seed, 1)), messages: messages, largest: largest, ahead: 20_000}
}

// talk has several conns of a say all they have, and returns a checksum of all
// that happened in the world.
func talk(tb testing.TB, seed uint64, stream sim.StreamConfig) (s *simulated, trace uint64) {
	tb.Helper()
	sum := crc64.New(crc64.MakeTable(crc64.ISO))
	s = inWorld(tb, sim.Config{Seed: seed, Trace: sum}, stream)
	s.run(tb, func(*sim.Proc) {
		if _, err := s.b.echo(s.addrB); err != nil {
			tb.Fatal(err)
		}
		for i := range 4 {
			c := speaker(seed+uint64(i), 800, 1500)
			if i == 2 {
				c.every = 20 * time.Microsecond
			}
			if i == 3 {
				c.abortAt = 200_000
			}
			if err := s.a.dial(s.addrA, s.addrB, c); err != nil {
				tb.Fatal(err)
			}
		}
		if !s.a.await(time.Minute, s.a.finished) || !s.b.await(time.Minute, s.b.finished) {
			tb.Error("not all came to an end in a minute")
		}
	})
	if err := errors.Join(s.a.faults(), s.b.faults()); err != nil {
		tb.Error(err)
	}
	if open := s.da.OpenStreams() + s.db.OpenStreams(); open != 0 {
		tb.Errorf("the drivers hold %d streams", open)
	}
	return s, sum.Sum64()
}

func TestSimulatedStreamsCarryMessages(t *testing.T) {
	for name, cfg := range map[string]sim.StreamConfig{
		"clean":   {},
		"tight":   {BufferBytes: 3000},
		"cut":     {CutPPM: 500_000},
		"stalled": {StallPPM: 50_000, StallFor: time.Millisecond, CutPPM: 100_000, BufferBytes: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := talk(t, 3, cfg)
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

func TestSimulatedStreamsBreakAndAreMadeAgain(t *testing.T) {
	broken := 0
	for seed := range uint64(5) {
		s := inWorld(t, sim.Config{Seed: seed}, sim.StreamConfig{CutPPM: 300_000, ResetPPM: 500})
		s.run(t, func(*sim.Proc) {
			if _, err := s.b.echo(s.addrB); err != nil {
				t.Fatal(err)
			}
			for left, tries := 1500, 0; left > 0 && tries < 100; tries++ {
				c := speaker(seed, left, 3000)
				if err := s.a.dial(s.addrA, s.addrB, c); err != nil {
					t.Fatal(err)
				}
				if !s.a.await(time.Minute, c.over) {
					t.Fatal("neither an end nor a failure")
				}
				if left = c.messages; c.err != nil {
					broken++
				}
			}
		})
		if err := errors.Join(s.a.faults(), s.b.faults()); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if broken < 5 {
		t.Errorf("%d streams broke: is anything reset at all?", broken)
	}
}

func TestSimulatedStreamsFollowFromTheSeed(t *testing.T) {
	cfg := sim.StreamConfig{CutPPM: 300_000, StallPPM: 10_000, StallFor: time.Millisecond}
	_, one := talk(t, 7, cfg)
	_, again := talk(t, 7, cfg)
	_, other := talk(t, 8, cfg)
	if one != again {
		t.Errorf("seed 7: %x, then %x", one, again)
	}
	if one == other {
		t.Error("seeds 7 and 8 gave one trace")
	}
}

func TestSimulatedDialsFail(t *testing.T) {
	s := inWorld(t, sim.Config{}, sim.StreamConfig{})
	s.run(t, func(*sim.Proc) {
		c := speaker(1, 1, 10)
		if err := s.a.dial(s.addrA, s.addrB, c); err != nil {
			t.Fatal(err)
		}
		if err := s.da.Dial(c, s.addrA, s.addrB); err == nil {
			t.Error("one conn dialed twice")
		}
		if !s.a.await(time.Second, c.over) || !errors.Is(c.err, link.ErrRefused) || c.connected {
			t.Errorf("nobody listens: %v", c.err)
		}
		s.b.turnAway = true
		l, err := s.b.echo(s.addrB)
		if err != nil {
			t.Fatal(err)
		}
		c = speaker(1, 1, 10)
		if err := s.a.dial(s.addrA, s.addrB, c); err != nil {
			t.Fatal(err)
		}
		if !s.a.await(time.Second, c.over) || !errors.Is(c.err, link.ErrReset) {
			t.Errorf("turned away: %v", c.err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Close again: %v", err)
		}
		if err := s.a.dial(s.addrA, netip.MustParseAddrPort("[fd00::9]:7"), speaker(1, 1, 1)); !errors.Is(err, link.ErrUnreachable) {
			t.Errorf("no such host: %v", err)
		}
	})
}

// A process that is stopped stands still, and goes on where it was.
func TestAFrozenHostsStreamsStandStill(t *testing.T) {
	s := inWorld(t, sim.Config{}, sim.StreamConfig{BufferBytes: 10_000})
	s.run(t, func(p *sim.Proc) {
		if _, err := s.b.echo(s.addrB); err != nil {
			t.Fatal(err)
		}
		c := speaker(1, 300, 3000)
		if err := s.a.dial(s.addrA, s.addrB, c); err != nil {
			t.Fatal(err)
		}
		p.Sleep(100 * time.Microsecond)
		s.pb.Freeze()
		got := s.b.conns[0].got
		late := speaker(2, 10, 100) // dialed while nobody can accept
		if err := s.a.dial(s.addrA, s.addrB, late); err != nil {
			t.Fatal(err)
		}
		p.Sleep(time.Second)
		if s.b.conns[0].got != got || s.b.accepted != 1 || c.over() {
			t.Errorf("a frozen host took %d bytes and %d streams", s.b.conns[0].got-got, s.b.accepted)
		}
		s.pb.Thaw()
		if !s.a.await(time.Second, s.a.finished) {
			t.Error("it does not go on")
		}
	})
	if err := errors.Join(s.a.faults(), s.b.faults()); err != nil || len(s.a.conns) != 2 {
		t.Error(err)
	}
}
