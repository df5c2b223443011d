package providertest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// device is a device of any provider.
type device interface {
	verbs.Context
	BlockedCalls() int
	Driver() drive.Driver
}

// provider is a provider under test.
type provider struct {
	name      string
	service   verbs.QPType
	open      func(w *sim.World, p *sim.Port, name string) (device, error)
	preposted int   // receives that Echo posts before it accepts
	impaired  Cable // with faults that a connection survives
}

// connects reports whether the provider has a connection manager.
func (p *provider) connects() bool { return p.service == verbs.QPTypeRC }

var providers = []*provider{
	{
		name: "softroce", service: verbs.QPTypeRC,
		open: func(w *sim.World, p *sim.Port, name string) (device, error) {
			return softroce.InWorld(w, p, p, softroce.Config{Name: name})
		},
		impaired: Cable{Up: impair.Config{Specs: []impair.Spec{{LossPPM: 50_000, DuplicatePPM: 20_000, CorruptPPM: 20_000}}}},
	},
	{
		name: "softiwarp", service: verbs.QPTypeRC, preposted: 2,
		open: func(w *sim.World, p *sim.Port, name string) (device, error) {
			return softiwarp.InWorld(w, p, p.StreamHost(), softiwarp.Config{Name: name})
		},
		impaired: Cable{Net: sim.NetConfig{Stream: sim.StreamConfig{CutPPM: 500_000, StallPPM: 50_000, StallFor: 300 * time.Microsecond, BufferBytes: 3000}}},
	},
	{
		name: "dgiwarp", service: verbs.QPTypeUD,
		open: func(w *sim.World, p *sim.Port, name string) (device, error) {
			return dgiwarp.InWorld(w, p, p, dgiwarp.Config{Name: name})
		},
	},
}

// each runs a test with every provider.
func each(t *testing.T, test func(t *testing.T, p *provider)) {
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) { test(t, p) })
	}
}

// eachConnecting runs a test with every provider that has a connection manager.
func eachConnecting(t *testing.T, test func(t *testing.T, p *provider)) {
	each(t, func(t *testing.T, p *provider) {
		if p.connects() {
			test(t, p)
		}
	})
}

// world is two devices in a simulated world.
type world struct {
	testing.TB
	*sim.World
	a, b  device
	ports [2]*sim.Port
	typ   verbs.QPType
}

func (p *provider) world(t testing.TB, c Cable) *world {
	t.Helper()
	w, ports := c.Open(t)
	return &world{t, w, must.Get(p.open(w, ports[0], "a"))(t), must.Get(p.open(w, ports[1], "b"))(t), ports, p.service}
}

// program starts a program.
func (w *world) program(name string, f func(p *sim.Proc)) {
	w.Go(name, func(p *sim.Proc) error {
		f(p)
		return nil
	})
}

// run runs the programs.
func (w *world) run() {
	w.Helper()
	must.Do(w, w.RunPrograms())
}

func (w *world) end(d device) *End { return NewEnd(w, d, w.typ) }

// connected starts a program at a, connected to b, which accepts and calls then.
func (w *world) connected(then func(e *End, c verbs.Conn), f func(p *sim.Proc, e *End, c verbs.Conn)) {
	at := netip.AddrPortFrom(AddrB, 7)
	w.program("b", func(*sim.Proc) { then(Accept(w, w.b, at, func() {})) })
	w.program("a", func(p *sim.Proc) {
		p.Sleep(time.Millisecond)
		e, c := Connect(w, w.a, at)
		f(p, e, c)
	})
	w.run()
}

// closer is any verbs object.
type closer interface{ Close() error }

func TestEchoInSimulation(t *testing.T) {
	eachConnecting(t, func(t *testing.T, p *provider) {
		for name, c := range map[string]Cable{"clean": {}, "impaired": p.impaired} {
			t.Run(name, func(t *testing.T) {
				c.Seed = 7
				w := p.world(t, c)
				Echo{w.a, w.b, AddrB, 50, p.preposted, time.Millisecond}.InWorld(t, w.World)
				w.run()
			})
		}
	})
}

func TestTimeoutsAreInVirtualTime(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		w.program("a", func(proc *sim.Proc) {
			e := w.end(w.a)
			before := proc.Now()
			_, err := e.Ch.Wait(3 * time.Second)
			must.Fail(t, "channel", err, verbs.ErrTimeout)
			_, err = w.a.WaitAsync(2 * time.Second)
			must.Fail(t, "asynchronous event", err, verbs.ErrTimeout)
			if took := proc.Now() - before; took != 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
		w.run()
	})
}

func TestDeadlockNamesWaitReason(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		want := []string{"completion event of a"}
		w.Go("waits for a completion", func(*sim.Proc) error { return must.Err(w.end(w.a).Ch.Wait(verbs.Forever)) })
		if p.connects() {
			want = append(want, "connection request to [fd00::1]:5")
			w.Go("waits for a request", func(*sim.Proc) error {
				return must.Err(Listen(t, w.a, netip.AddrPortFrom(AddrA, 5), 0).GetRequest(verbs.Forever))
			})
		}
		var dead *sim.DeadlockError
		if err := w.Run(); !errors.As(err, &dead) || len(dead.Waiting) != len(want) {
			t.Fatalf("got %v", err)
		}
		for i, reason := range want {
			if got := dead.Waiting[i].Reason; got != reason {
				t.Errorf("waits for %q, want %q", got, reason)
			}
		}
	})
}

func TestPortEventsFollowLink(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		w.program("a", func(*sim.Proc) {
			e := w.end(w.a)
			for _, up := range []bool{false, true} {
				set, event, state := w.ports[0].SetDown, verbs.EventPortErr, verbs.PortDown
				if up {
					set, event, state = w.ports[0].SetUp, verbs.EventPortActive, verbs.PortActive
				}
				set()
				if ev := e.ExpectEvent(event); ev.Port != 1 {
					t.Errorf("%v of port %d", ev.Type, ev.Port)
				}
				if a := must.Get(w.a.QueryPort(1))(t); a.State != state {
					t.Errorf("up %v: the port is %v", up, a.State)
				}
			}
		})
		w.run()
	})
}

// Counters have unique names, the same for every device, and keep them when it is closed.
func TestCounterNames(t *testing.T) {
	names := func(d device) (all []string) {
		for _, c := range d.Counters() {
			all = append(all, c.Name)
		}
		return all
	}
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		first := names(w.a)
		seen := map[string]bool{}
		for _, name := range first {
			if seen[name] {
				t.Errorf("%s appears twice", name)
			}
			seen[name] = true
		}
		must.Do(t, w.a.Close())
		for _, d := range []device{w.a, w.b} {
			if got := names(d); strings.Join(got, " ") != strings.Join(first, " ") {
				t.Errorf("counters %q, want %q", got, first)
			}
		}
	})
}
