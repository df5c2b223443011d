package mpihost

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// World is a simulated fabric with ranks on it, for a Script to do things to.
type World struct {
	f        Fabric
	provider *nics.Provider
	sim      *sim.World
	hub      *sim.Hub
	hosts    []host
	ranks    []*worldRank
	nodes    []int
	out      Outcome
	problem  error // of a Script's
}

// host is a machine of the world.
type host struct {
	ports   []*sim.Port // by rail
	devices []verbs.Context
	shared  segments
}

// InWorld runs run once for each rank, in a simulated world that is made for it and
// ends with the ranks. It returns when all have ended. The error is that of the rank
// that failed first (*RankError); *AbortError if one aborted, *HungError if ranks would
// never have ended, and else what is wrong with the fabric.
func InWorld(f Fabric, run func(e *env.Env) error) (Outcome, error) {
	f, p, err := f.normal()
	if err != nil {
		return Outcome{}, fmt.Errorf("fabric: %w", err)
	}
	w := &World{f: f, provider: p, nodes: f.nodes()}
	w.sim = sim.New(sim.Config{
		Seed: f.Seed, MaxTime: mono.Time(f.Limit), MaxEvents: f.Events, Chooser: f.Chooser, Trace: f.Trace, Stop: f.Stop,
	})
	defer w.sim.Close()
	if err := w.build(); err != nil {
		return Outcome{}, errors.Join(fmt.Errorf("fabric: %w", err), w.close())
	}
	w.addRanks(run)
	if f.Script != nil {
		f.Script(w)
	}
	err = w.sim.RunPrograms()
	w.out.Events = w.sim.Events()
	err = w.verdict(err)
	return w.out, errors.Join(err, w.problem, w.close())
}

// build makes the networks and a device for every host and rail.
func (w *World) build() error {
	plan, err := w.f.draw()
	if err != nil {
		return err
	}
	opener, err := w.provider.With(w.f.Setup)
	if err != nil {
		return err
	}
	nets := make([]*sim.Net, w.f.Rails)
	for rail := range nets {
		nets[rail], err = sim.NewNet(w.sim, sim.NetConfig{
			Name: fmt.Sprintf("rail%d", rail), Dissector: w.provider.Dissector, Stream: w.f.Stream,
		})
		if err != nil {
			return err
		}
	}
	w.hosts = make([]host, len(plan.Hosts))
	for i := range plan.Hosts {
		h := &w.hosts[i]
		h.shared = make(segments)
		for k := range plan.Hosts[i].NICs {
			nic := &plan.Hosts[i].NICs[k]
			at := nics.Place{Name: plan.Hosts[i].Name + "/" + nic.Name, Addr: w.f.addr(nic), LineRateBps: w.f.Link.RateBps}
			port, err := nets[nic.Rail].Attach(sim.PortConfig{
				Name: at.Name, Addrs: []netip.Addr{at.Addr}, Link: w.f.Link, Up: impair.Config{Specs: w.f.Impair},
			})
			if err != nil {
				return err
			}
			d, err := opener.InWorld(w.sim, port, at)
			if err != nil {
				return err
			}
			h.ports, h.devices = append(h.ports, port), append(h.devices, d)
		}
	}
	return nil
}

// close closes every device.
func (w *World) close() error {
	var errs []error
	for i := range w.hosts {
		for _, d := range w.hosts[i].devices {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// verdict is what the run's error means.
func (w *World) verdict(err error) error {
	first, failed := -1, 0
	for i := range w.out.Ranks {
		r := &w.out.Ranks[i]
		w.out.Elapsed = max(w.out.Elapsed, r.Ended)
		if r.Err == nil {
			continue
		}
		failed++
		if first < 0 || r.Ended < w.out.Ranks[first].Ended {
			first = i
		}
	}
	var errs []error
	if w.out.Aborted != nil {
		errs = append(errs, w.out.Aborted)
	}
	if first >= 0 {
		errs = append(errs, &RankError{Rank: first, Host: w.nodes[first], Err: w.out.Ranks[first].Err, Others: failed - 1})
	}
	if h := hung(err); h != nil {
		w.out.Elapsed = time.Duration(w.sim.Now())
		err = h
	}
	return errors.Join(append(errs, err)...)
}

// Sim is the world itself.
func (w *World) Sim() *sim.World { return w.sim }

// Now is its time.
func (w *World) Now() time.Duration { return time.Duration(w.sim.Now()) }

// At runs f at a time of the world's. f must not block.
func (w *World) At(t time.Duration, f func()) { w.sim.AtFunc(mono.Time(t), f) }

// Hosts is how many there are, and Rails how many NICs each has.
func (w *World) Hosts() int { return len(w.hosts) }

// Rails is how many NICs each host has.
func (w *World) Rails() int { return w.f.Rails }

// Host is where a rank is.
func (w *World) Host(rank int) int { return w.nodes[rank] }

// Port is the place of a host on a rail: its cable can be cut (SetDown), mended, and
// made worse (SetImpair).
func (w *World) Port(host, rail int) *sim.Port { return w.hosts[host].ports[rail] }

// Device is that of a host on a rail.
func (w *World) Device(host, rail int) verbs.Context { return w.hosts[host].devices[rail] }

// Program is the coroutine of a rank, which can be paused.
func (w *World) Program(rank int) *sim.Proc { return w.ranks[rank].proc }

// Cut takes the cables of a host down on a rail, or on all if rail is negative.
func (w *World) Cut(host, rail int) { w.eachPort(host, rail, (*sim.Port).SetDown) }

// Mend undoes Cut.
func (w *World) Mend(host, rail int) { w.eachPort(host, rail, (*sim.Port).SetUp) }

// Impair replaces what happens by chance to packets on their way out of a host, on a
// rail or on all if rail is negative; hosts alike, if host is negative. What cannot be
// is an error of the run, and so is asking it of streams, which lose nothing.
func (w *World) Impair(host, rail int, specs ...impair.Spec) {
	if w.provider.Streams {
		w.problem = errors.Join(w.problem, fmt.Errorf("impairments at run time: %s talks over streams, which lose nothing: cut the cable, or set Fabric.Stream", w.f.Provider))
		return
	}
	w.eachPort(host, rail, func(p *sim.Port) {
		w.problem = errors.Join(w.problem, p.SetImpair(specs, nil))
	})
}

func (w *World) eachPort(host, rail int, f func(*sim.Port)) {
	for h := range w.hosts {
		for r, p := range w.hosts[h].ports {
			if (host < 0 || h == host) && (rail < 0 || r == rail) {
				f(p)
			}
		}
	}
}
