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
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/verbs"
)

// World is a simulated fabric with ranks, as a Script sees it.
type World struct {
	f          Fabric
	provider   *nics.Provider
	sim        *sim.World
	hub        *sim.Hub
	hosts      []host
	ranks      []*worldRank
	nodes      []int
	out        Outcome
	releaseErr error // of ranks that have ended
	onWork     func(rank int, what verbs.Work, n int, start time.Duration)
}

type host struct {
	ports   []*sim.Port // by rail
	devices []verbs.Context
	shared  segments
	bus     memoryBus
}

// InWorld calls run for each rank in a new simulation, and returns when all ranks have ended.
// Before the ranks run, it calls f.Script, which may schedule faults. The error wraps a *RankError
// for the first rank that failed, an *AbortError if a rank aborted, a *HungError if ranks did not
// end, and errors of the fabric and of releasing the resources of ended ranks.
func InWorld(f Fabric, run func(e *transport.Env) error) (Outcome, error) {
	f, p, err := f.withDefaults()
	if err != nil {
		return Outcome{}, fmt.Errorf("fabric: %w", err)
	}
	w := &World{f: f, provider: p, nodes: f.nodes()}
	w.sim = sim.New(sim.Config{
		Seed: f.Seed, MaxTime: mono.Time(f.Limit), MaxEvents: f.Events, Stop: f.Stop,
		Chooser: f.Chooser, Reorder: f.Reorder, Faults: f.Faults,
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
	err = w.runError(err)
	return w.out, errors.Join(err, w.releaseErr, w.close())
}

// build creates a network for each rail, a device for each host and rail, and the shared memory of
// each host. The impairments apply to the packets that a host sends (Up).
func (w *World) build() error {
	plan, err := w.f.topology()
	if err != nil {
		return err
	}
	opener, err := w.provider.NewOpener(w.f.Setup)
	if err != nil {
		return err
	}
	nets, leafOf, err := w.buildNets(&plan)
	if err != nil {
		return err
	}
	w.hosts = make([]host, len(plan.Hosts))
	for i := range plan.Hosts {
		h := &w.hosts[i]
		h.shared, h.bus.rateBps = make(segments), w.f.MemoryBps
		if w.f.Costs != nil {
			h.bus.cached = w.f.Costs.Copy.CachedBytes
		}
		for k := range plan.Hosts[i].NICs {
			nic := &plan.Hosts[i].NICs[k]
			config := nics.NICConfig{Name: plan.Hosts[i].Name + "/" + nic.Name, Addr: nic.Addr(w.f.IPv4), LineRateBps: w.f.Link.RateBps}
			if w.f.Costs != nil {
				config.Costs = *w.f.Costs
				if !w.f.ChargeWakes {
					// A simulated rank waits for events where a real one polls, which needs no wake-up.
					// Package mpi itself charges the wake-ups of ranks that sleep.
					config.Costs.Wake = 0
				}
			}
			port, err := nets[nic.Rail].Attach(sim.PortConfig{
				Name: config.Name, Addrs: []netip.Addr{config.Addr}, Link: w.f.Link, NIC: w.f.NIC, Up: impair.Config{Specs: w.f.Impair},
				Switch: leafOf[config.Name], Placement: w.f.Placement,
			})
			if err != nil {
				return err
			}
			d, err := opener.InWorld(w.sim, port, config)
			if err != nil {
				return err
			}
			h.ports, h.devices = append(h.ports, port), append(h.devices, d)
		}
	}
	return nil
}

// buildNets creates a network for each rail, with the switches and trunks of a fat tree if there is
// one. leafOf has the leaf of each NIC, by HOST/NIC; without a tree it is empty, because a network
// has one switch by itself.
func (w *World) buildNets(plan *topology.Topology) (nets []*sim.Net, leafOf map[string]*sim.Switch, err error) {
	nets = make([]*sim.Net, w.f.Rails)
	for rail := range nets {
		nets[rail], err = sim.NewNet(w.sim, sim.NetConfig{
			Name: fmt.Sprintf("rail%d", rail), Dissector: w.provider.Dissector, Stream: w.f.stream,
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if w.f.Leaves == 0 {
		return nets, nil, nil
	}
	switches, rails := map[string]*sim.Switch{}, map[string]int{}
	for _, s := range plan.Switches {
		rails[s.Name] = s.Rail
		if switches[s.Name], err = nets[s.Rail].AddSwitch(sim.SwitchConfig{Name: s.Name, Routed: s.Routed}); err != nil {
			return nil, nil, err
		}
	}
	leafOf = map[string]*sim.Switch{}
	for _, c := range plan.Cables { // A is a NIC or a leaf, B the switch above it
		a := switches[c.A.Node]
		if a == nil {
			leafOf[c.A.Node+"/"+c.A.NIC] = switches[c.B.Node]
		} else if _, err = nets[rails[c.A.Node]].AddTrunk(sim.TrunkConfig{A: a, B: switches[c.B.Node], Link: w.f.Link}); err != nil {
			return nil, nil, err
		}
	}
	return nets, leafOf, nil
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

// runError returns the error of the run: the abort, the error of the rank that failed first, and
// simErr, the error of the simulation, with the pending requests of up to maxNames ranks that hang.
// It also sets the elapsed time of the outcome.
func (w *World) runError(simErr error) error {
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
	if hung := hungError(simErr); hung != nil {
		for _, r := range w.ranks {
			if r.describe != nil && !r.ended && len(hung.Requests) < maxNames {
				hung.Requests = append(hung.Requests, fmt.Sprintf("pending requests of rank %d: %s", r.rank, r.describe()))
			}
		}
		if w.f.Explain != nil {
			hung.WaitGraph = w.f.Explain()
		}
		w.out.Elapsed = time.Duration(w.sim.Now())
		simErr = hung
	}
	return errors.Join(append(errs, simErr)...)
}

// Events returns the number of events and program steps that have run.
func (w *World) Events() uint64 { return w.sim.Events() }

// Now returns the virtual time.
func (w *World) Now() time.Duration { return time.Duration(w.sim.Now()) }

// At calls f at a virtual time. f must not block.
func (w *World) At(t time.Duration, f func()) { w.sim.AtFunc(mono.Time(t), f) }

// OnWork calls f after each piece of work for which a rank spent CPU time itself, with the number
// of operations, or of bytes of a copy. The work ends now.
func (w *World) OnWork(f func(rank int, what verbs.Work, n int, start time.Duration)) { w.onWork = f }

// Host returns the index of the host of a rank.
func (w *World) Host(rank int) int { return w.nodes[rank] }

// Port returns the port of a host on a rail.
func (w *World) Port(host, rail int) *sim.Port { return w.hosts[host].ports[rail] }

// Device returns the device of a host on a rail.
func (w *World) Device(host, rail int) verbs.Context { return w.hosts[host].devices[rail] }

// LinkDown sets the link of a host on a rail down, or on all rails if rail is negative.
func (w *World) LinkDown(host, rail int) { w.eachPort(host, rail, (*sim.Port).SetDown) }

// LinkUp sets the links up that LinkDown set down.
func (w *World) LinkUp(host, rail int) { w.eachPort(host, rail, (*sim.Port).SetUp) }

// eachPort calls f for the port of a host on a rail, or on all rails if rail is negative.
func (w *World) eachPort(host, rail int, f func(*sim.Port)) {
	for r, p := range w.hosts[host].ports {
		if rail < 0 || r == rail {
			f(p)
		}
	}
}
