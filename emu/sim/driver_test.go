package sim_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var _ drive.Driver = (*sim.Driver)(nil)

// echo is an engine that answers "ping" with "pong", and records all other input.
type echo struct {
	peer     netip.AddrPort
	out      []string
	got      []string
	gate     drive.Cond
	deadline mono.Time
	ticks    []mono.Time
	settled  int
	maxBatch int               // largest number of packets that Output was called for
	onInput  func(text string) // replaces Input if not nil
}

func (e *echo) Input(_ mono.Time, d *link.Datagram) {
	if e.onInput != nil {
		e.onInput(string(d.Payload))
		return
	}
	if string(d.Payload) == "ping" {
		e.out = append(e.out, "pong")
		return
	}
	e.got = append(e.got, string(d.Payload))
	e.gate.Notify()
}

func (e *echo) Settle(mono.Time) { e.settled++ }

func (e *echo) Output(_ mono.Time, ds []link.Datagram) int {
	e.maxBatch = max(e.maxBatch, len(ds))
	n := min(len(ds), len(e.out))
	for i := range n {
		ds[i].Dst, ds[i].Src = e.peer, netip.AddrPort{}
		ds[i].Payload = append(ds[i].Payload[:0], e.out[i]...)
	}
	e.out = e.out[n:]
	return n
}

func (e *echo) Tick(now mono.Time) {
	e.ticks = append(e.ticks, now)
	e.deadline = mono.Never
}

func (e *echo) Deadline() mono.Time { return e.deadline }

type side struct {
	e          *echo
	d          *sim.Driver
	port       *sim.Port
	ups        []bool
	addrEvents []string
}

func (s *side) LinkChanged(up bool) { s.ups = append(s.ups, up) }

func (s *side) AddrChanged(a netip.Addr, present bool) {
	s.addrEvents = append(s.addrEvents, fmt.Sprintf("%v %v", a, present))
}

var costs = verbs.Costs{
	Control: 300, Post: 20, Poll: 1, Inline: verbs.LinearCost{PicosecondsPerByte: 1000}, InlineBytes: 64,
	Register: verbs.LinearCost{Base: 5000}, Deregister: verbs.LinearCost{Base: 4000}, Wake: 700,
}

const latency = 10 * time.Microsecond

// twoSides returns two drivers on one link.
func twoSides(t *testing.T, cfg sim.LinkConfig) (w *sim.World, a, b *side) {
	t.Helper()
	w = sim.New(sim.Config{Seed: 1})
	t.Cleanup(w.Close)
	cfg.Latency, cfg.MTU = latency, 1500
	addrs := [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{},
		sim.PortConfig{Addrs: addrs[:1], Link: cfg}, sim.PortConfig{Addrs: addrs[1:], Link: cfg})
	if err != nil {
		t.Fatal(err)
	}
	start := func(p *sim.Port, peer netip.Addr) *side {
		s := &side{e: &echo{peer: netip.AddrPortFrom(peer, 7), deadline: mono.Never}, port: p}
		s.d = sim.NewDriver(s.e, p, sim.DriverConfig{Port: p, Costs: costs, Observer: s})
		s.e.gate = s.d.NewCond(drive.WaitReason("pong"))
		return s
	}
	return w, start(pa, addrs[1]), start(pb, addrs[0])
}

func (s *side) send(texts ...string) {
	s.d.Lock(drive.CallPost)
	s.e.out = append(s.e.out, texts...)
	s.d.Pump()
	s.d.Unlock()
}

func run(t *testing.T, w *sim.World, f func(p *sim.Proc)) {
	t.Helper()
	w.Go("program", func(p *sim.Proc) error { f(p); return nil })
	must.Do(t, w.RunPrograms())
}

func TestDriverAnswersWithoutProgram(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	run(t, w, func(p *sim.Proc) {
		a.send("ping")
		sent := p.Now()
		if !a.e.gate.Wait(time.Second) {
			t.Fatal("no answer")
		}
		if took := p.Now() - sent; took != 2*latency+costs.Wake || !slices.Equal(a.e.got, []string{"pong"}) {
			t.Errorf("got %q after %v", a.e.got, took)
		}
	})
}

// The driver asks the engine for no more packets than the transmit queue holds: an urgent
// packet cannot overtake those that the engine has put out.
func TestSendQueueIsBoundedByTransmitQueue(t *testing.T) {
	for bytes, want := range map[int]int{0: drive.BatchSize, 4500: 3, 100: 1} {
		w, a, _ := twoSides(t, sim.LinkConfig{TxQueueBytes: bytes})
		run(t, w, func(*sim.Proc) { a.send("ping", "ping", "ping", "ping", "ping") })
		if a.e.maxBatch != want {
			t.Errorf("transmit queue of %d bytes: Output of %d packets at once, want %d", bytes, a.e.maxBatch, want)
		}
	}
}

func TestPollReceivesAndTakesTime(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	run(t, w, func(p *sim.Proc) {
		a.send("ping")
		for polls := 1; ; polls++ {
			before := p.Now()
			a.d.Lock(drive.CallPoll)
			if len(a.e.got) == 0 {
				a.d.Progress()
			}
			found := len(a.e.got) > 0
			if found {
				a.d.PollFound()
			} else {
				a.d.PollEmpty()
			}
			a.d.Unlock()
			if found {
				return
			}
			a.d.Yield()
			if p.Now() == before || polls > int(3*latency/costs.Poll) {
				t.Fatalf("%d polls in %v", polls, p.Now())
			}
		}
	})
}

func TestCallsTakeTheirCosts(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	a.d.Lock(drive.CallControl) // outside of a program, it takes no time
	a.d.Unlock()
	run(t, w, func(p *sim.Proc) {
		for call, want := range map[drive.CallKind]time.Duration{
			drive.CallControl: costs.Control, drive.CallPost: costs.Post, drive.CallPoll: costs.Poll, drive.CallWait: 0,
		} {
			before := p.Now()
			a.d.Lock(call)
			a.d.Unlock()
			if took := p.Now() - before; took != want {
				t.Errorf("call %d took %v, want %v", call, took, want)
			}
			if a.d.Now() != mono.Time(p.Now()) {
				t.Errorf("driver's time is %v, the program's %v", a.d.Now(), p.Now())
			}
		}
		for _, c := range []struct {
			what  drive.ByteCost
			bytes int
			want  time.Duration
		}{{drive.Inline, 64, 64}, {drive.Inline, 65, 0}, {drive.Registration, 1, 5000}, {drive.Deregistration, 1, 4000}} {
			before := p.Now()
			a.d.SpendBytes(c.what, c.bytes)
			if took := p.Now() - before; took != c.want {
				t.Errorf("operation %d on %d bytes took %v, want %v", c.what, c.bytes, took, c.want)
			}
		}
	})
}

// The tap sees the calls of a program with their times, also the part that depends on bytes.
func TestCallTapSeesCalls(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	var got []string
	a.d.Port.Net().SetCallTap(func(c sim.Call) {
		got = append(got, fmt.Sprintf("%s %d B, %v", c.Kind, c.Bytes, c.End.Sub(c.Start)))
	})
	run(t, w, func(*sim.Proc) {
		a.d.Lock(drive.CallPost)
		a.d.Unlock()
		a.d.SpendBytes(drive.Inline, 64)
		a.d.SpendBytes(drive.Inline, 65) // too long for inline data
		a.d.SpendBytes(drive.Registration, 1)
		a.d.Lock(drive.CallWait)
	})
	want := []string{fmt.Sprintf("post 0 B, %v", a.d.Costs.Post), fmt.Sprintf("inline 64 B, %v", a.d.Costs.Inline.Of(64)), fmt.Sprintf("register 1 B, %v", a.d.Costs.Register.Of(1))}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWokenProgramRunsAfterWakeTime(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	var wokenAt time.Duration
	w.Go("waiter", func(p *sim.Proc) error {
		a.e.gate.Wait(-1)
		wokenAt = p.Now()
		return nil
	})
	run(t, w, func(p *sim.Proc) {
		p.Sleep(1000)
		a.e.gate.Notify()
	})
	if wokenAt != 1000+costs.Wake {
		t.Errorf("woken at %v", wokenAt)
	}
}

func TestWaitEndsAtTimeoutOrNotify(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	woken := 0
	for range 3 {
		w.Go("waiter", func(*sim.Proc) error {
			if a.e.gate.Wait(-1) {
				woken++
			}
			return nil
		})
	}
	run(t, w, func(p *sim.Proc) {
		other := a.d.NewCond(drive.WaitReason("nothing"))
		before := p.Now()
		if other.Wait(37 * time.Millisecond) {
			t.Error("Wait reported a notification")
		}
		if took := p.Now() - before; took != 37*time.Millisecond || woken != 0 {
			t.Errorf("timed out after %v; %d others woken", took, woken)
		}
		a.e.gate.Notify()
	})
	if woken != 3 {
		t.Errorf("%d of 3 woken", woken)
	}
}

func TestWaitOutsideOfProgramPanics(t *testing.T) {
	_, a, _ := twoSides(t, sim.LinkConfig{})
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "pong") || !strings.Contains(s, "World.Go") {
			t.Errorf("panic %q", s)
		}
	}()
	a.e.gate.Wait(0)
}

func TestTimersExpireExactlyOnTime(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	run(t, w, func(p *sim.Proc) {
		far, near := a.d.Now().Add(3*time.Millisecond), a.d.Now().Add(time.Millisecond)
		for _, at := range []mono.Time{far, near} { // a deadline may become earlier
			a.e.deadline = at
			a.d.Pump()
		}
		p.Sleep(time.Second)
		if !slices.Equal(a.e.ticks, []mono.Time{near}) {
			t.Errorf("ticked at %v, due at %v", a.e.ticks, near)
		}
		a.e.deadline = a.d.Now()
		a.d.Pump()
		if len(a.e.ticks) != 2 {
			t.Error("Pump did not handle a deadline that has passed")
		}
	})
}

func TestDriverRetriesFullLink(t *testing.T) {
	w, a, b := twoSides(t, sim.LinkConfig{RateBps: 1e9, TxQueueBytes: 200})
	run(t, w, func(p *sim.Proc) {
		want := slices.Repeat([]string{"data"}, 2*drive.BatchSize+1)
		a.send(want...)
		if len(a.e.out) == 0 {
			t.Error("the link accepted all packets at once")
		}
		p.Sleep(time.Second)
		if !slices.Equal(b.e.got, want) {
			t.Errorf("%d of %d arrived", len(b.e.got), len(want))
		}
	})
}

func TestLinkChangesAreReported(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	run(t, w, func(p *sim.Proc) {
		for _, change := range []func(){a.port.SetDown, a.port.SetUp} {
			settled := a.e.settled
			change()
			p.Sleep(time.Microsecond)
			if a.e.settled == settled {
				t.Error("the engine was not settled after the change")
			}
		}
	})
	if !slices.Equal(a.ups, []bool{false, true}) {
		t.Errorf("reported %v", a.ups)
	}
}

func TestAddressChangesAreReported(t *testing.T) {
	w, a, _ := twoSides(t, sim.LinkConfig{})
	own, other := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::9")
	run(t, w, func(p *sim.Proc) {
		for _, change := range []func() error{
			func() error { return a.port.RemoveAddr(own) },
			func() error { return a.port.AddAddr(other) }, // not an address of the driver
			func() error { return a.port.AddAddr(own) },
		} {
			settled := a.e.settled
			must.Do(t, change())
			p.Sleep(time.Microsecond)
			if a.e.settled == settled {
				t.Error("the engine was not settled after the change")
			}
		}
	})
	if !slices.Equal(a.addrEvents, []string{"fd00::1 false", "fd00::1 true"}) {
		t.Errorf("reported %v", a.addrEvents)
	}
}

func TestClosedDriverHandlesNoEvents(t *testing.T) {
	w, a, b := twoSides(t, sim.LinkConfig{})
	run(t, w, func(p *sim.Proc) {
		a.e.deadline = a.d.Now().Add(time.Millisecond)
		a.d.Pump()
		b.send("late")
		a.d.Close()
		a.port.SetDown()
		p.Sleep(time.Second)
		if len(a.e.ticks) != 0 || len(a.e.got) != 0 || len(a.ups) != 0 {
			t.Errorf("ticks %v, received %q, reported %v", a.e.ticks, a.e.got, a.ups)
		}
	})
}

// A request that arrives during a long response is received between two of its batches,
// also at the same instant, and its response may be sent before the rest.
func TestDriverReceivesBetweenBatches(t *testing.T) {
	w, a, b := twoSides(t, sim.LinkConfig{})
	a.e.onInput = func(text string) {
		if text == "long" {
			a.e.out = slices.Repeat([]string{text}, 4*drive.BatchSize)
		} else {
			a.e.out = slices.Insert(a.e.out, 0, text)
		}
	}
	run(t, w, func(p *sim.Proc) {
		b.send("long", "short")
		p.Sleep(time.Second)
	})
	if at := slices.Index(b.e.got, "short"); at < 0 || at > drive.BatchSize || len(b.e.got) != 4*drive.BatchSize+1 {
		t.Errorf("of %d packets, the short response is number %d, want at most %d", len(b.e.got), at, drive.BatchSize)
	}
}
