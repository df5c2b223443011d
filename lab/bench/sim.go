package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// SimOptions are options of simulated benches.
type SimOptions struct {
	// MaxTime and MaxEvents end a case that hangs: maximum virtual time and number
	// of events. 0 means 2 h and 20 million.
	MaxTime   time.Duration
	MaxEvents uint64
	// Restrictions are those of the devices under test.
	Restrictions nics.Restrictions
	// VerbTime is the virtual time of each verb call, to simulate a slow agent.
	// Cases then use the timers of real time.
	VerbTime time.Duration
}

const (
	defaultMaxTime   = 2 * time.Hour
	defaultMaxEvents = 20_000_000
)

// pathLatency is the time of a packet between the device and its peer, over two links and a switch.
const (
	pathLatency = 2 * linkLatency
	linkLatency = 500 * time.Nanosecond
)

// Simulation is a lab that runs each case in a new simulation.
type Simulation struct {
	provider *nics.Provider
	opt      SimOptions
}

// InSimulation returns a lab of simulated devices.
func InSimulation(p *nics.Provider, opt SimOptions) *Simulation {
	opt.MaxTime, opt.MaxEvents = cmp.Or(opt.MaxTime, defaultMaxTime), cmp.Or(opt.MaxEvents, defaultMaxEvents)
	return &Simulation{p, opt}
}

// Close does nothing.
func (l *Simulation) Close() error { return nil }

// WithBench implements conformance.Lab: it runs the body of a case in a new simulated network.
func (l *Simulation) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) (err error) {
	cfg, err := newBenchConfig(l.provider, l.opt.Restrictions, &job)
	if err != nil {
		return err
	}
	s := &simCase{cfg: cfg, verbTime: l.opt.VerbTime, world: &simWorld{World: sim.New(sim.Config{
		Seed: job.Seed, MaxTime: mono.Time(l.opt.MaxTime), MaxEvents: l.opt.MaxEvents,
		Stop: func() error { return context.Cause(ctx) },
	})}}
	defer s.world.Close()
	defer func() { // a panic in an event
		if v := recover(); v != nil {
			err = newCrashError(v, debug.Stack())
		}
	}()
	b, err := s.build(l.provider, &job)
	if err != nil {
		return err
	}
	var outcome error
	s.world.World.Go("case", func(*sim.Proc) error {
		outcome = body(b)
		outcome = cmp.Or(outcome, errors.Join(s.world.endTasks(), closeDevices(s.devices)))
		return nil
	})
	if err := s.world.RunPrograms(); err != nil {
		return runError(err)
	}
	return outcome
}

// simCase is a case with its simulation.
type simCase struct {
	cfg       *benchConfig
	verbTime  time.Duration
	world     *simWorld
	net       *sim.Net
	port      *sim.Port
	wire      *simWire
	nicConfig nics.NICConfig
	devices   []verbs.Context // the device under test, then its partners
}

// build creates the bench (the device under test, its network and peers), with the device open, at
// time 0. The peer's end of the link is a wire for packets, or streams over TCP.
func (s *simCase) build(p *nics.Provider, job *conformance.BenchSpec) (*conformance.Bench, error) {
	w := s.cfg
	var err error
	if s.net, err = sim.NewNet(s.world.World, sim.NetConfig{Name: "net"}); err != nil {
		return nil, err
	}
	if s.port, err = s.attach("device", append(slices.Clip(w.local), hostAddr(w.family, cableHost)), defaultRxQueue); err != nil { // packets to unknown addresses go to cableHost
		return nil, w.openError(err)
	}
	// simWire taps packets to the peer: the port needs no queue.
	const rxQueueBytes = 1
	peer, err := s.attach("peer", append(hostAddrs(4, firstPeer, peers), hostAddrs(6, firstPeer, peers)...), rxQueueBytes)
	if err != nil {
		return nil, err
	}
	s.nicConfig = w.nicConfig(simRateBps)
	s.nicConfig.Costs = verbs.Costs{Control: s.verbTime, Post: s.verbTime, Poll: s.verbTime}
	b := newBench(job, s.world, w.addrPair, w.mtu)
	b.Virtual = s.verbTime == 0 // slow verb calls, as of a remote agent, need the timeouts of real time
	b.Partner, b.SetLink, b.SetAddress, b.SetPath = s.openPartner, s.setLink, s.setAddress, s.setPath
	if p.OverTCP {
		b.SetAddress = func(netip.Addr, bool) error {
			return fmt.Errorf("%w: removing an address does not affect simulated streams", conformance.ErrBenchCannot)
		}
		b.SetPath = noImpairments(fmt.Errorf("%w: simulated streams have no packets to impair", conformance.ErrBenchCannot))
		streams := &simStreams{w: s.world, host: peer.StreamHost(), from: w.peers[0]}
		streams.host.OnReady(streams, 0) // HandleEvent ignores the 0
		b.Streams = b.Record.RecordStreams(s.world, streams)
	} else {
		s.wire = &simWire{w: s.world, device: s.port, peer: peer, cfg: w}
		s.net.SetTap(s.wire.tap)
		s.nicConfig.WrapLink = func(l link.GroupLink) link.GroupLink { return &redirectedLink{l, s.wire} }
		b.Wire = b.Record.RecordWire(s.world, s.wire)
	}
	s.devices = make([]verbs.Context, 1)
	return b, openTested(b, s.openTested)
}

// openTested opens the device under test, with the restrictions of the lab. It may be called again
// after the device was closed.
func (s *simCase) openTested() (verbs.Context, error) {
	if reopened := s.devices[0] != nil; reopened && s.wire != nil {
		if err := s.replacePort(); err != nil {
			return nil, err
		}
	}
	d, err := s.cfg.device.InWorld(s.world.World, s.port, s.nicConfig)
	if err != nil {
		return nil, s.cfg.openError(err)
	}
	s.devices[0] = d
	return s.cfg.restrictions.Apply(d), nil
}

// replacePort attaches a new port in place of the one that was closed with the device before. The new
// port has its addresses and link state, and no impairments.
func (s *simCase) replacePort() error {
	const defaultName = ""
	port, err := s.attach(defaultName, s.port.Addrs(), defaultRxQueue)
	if err != nil {
		return err
	}
	if !s.port.Up() {
		port.SetDown()
	}
	s.port, s.wire.device = port, port
	return nil
}

// defaultRxQueue as a parameter of attach selects the simulator's default.
const defaultRxQueue = 0

// attach adds a port with addresses to the network. rxQueueBytes limits its receive queue.
func (s *simCase) attach(name string, addrs []netip.Addr, rxQueueBytes int) (*sim.Port, error) {
	return s.net.Attach(sim.PortConfig{
		Name: name, Addrs: addrs,
		Link: sim.LinkConfig{Latency: linkLatency, MTU: s.cfg.mtu, RxQueueBytes: rxQueueBytes},
	})
}

// openPartner opens a partner on a new port: a device without defects, with which the device under
// test communicates.
func (s *simCase) openPartner() (verbs.Context, error) {
	nicConfig := s.cfg.partnerConfig(len(s.devices), simRateBps)
	port, err := s.attach(nicConfig.Name, []netip.Addr{nicConfig.Addr}, defaultRxQueue)
	if err != nil {
		return nil, err
	}
	d, err := s.cfg.partner.InWorld(s.world.World, port, nicConfig)
	if err != nil {
		return nil, s.cfg.openError(err)
	}
	s.devices = append(s.devices, d)
	return d, nil
}

// setLink sets the device's link up or down. Packets in flight are lost when it goes down.
func (s *simCase) setLink(up bool) error {
	if up {
		s.port.SetUp()
		return nil
	}
	s.port.SetDown()
	if s.wire != nil {
		s.wire.inFlight = nil
	}
	return nil
}

// setAddress adds or removes an address of the device's port.
func (s *simCase) setAddress(a netip.Addr, present bool) error {
	switch has := slices.Contains(s.port.Addrs(), a); {
	case !slices.Contains(s.cfg.local, a):
		return notLocal(a, s.cfg.local)
	case has == present:
		return nil
	case present:
		return s.port.AddAddr(a)
	}
	return s.port.RemoveAddr(a)
}

// notLocal returns an error for an address that the device does not have.
func notLocal(a netip.Addr, local []netip.Addr) error {
	return fmt.Errorf("%v is not an address of the device, which has %v", a, local)
}

// setPath sets the impairments of the device's link.
func (s *simCase) setPath(p conformance.Path) error {
	spec := impair.Spec{LossPPM: p.LossPPM, DuplicatePPM: p.DuplicatePPM, Jitter: p.Jitter, KeepOrder: p.KeepOrder}
	if p == (conformance.Path{}) {
		return s.port.SetImpair(nil, nil) // none in either direction
	}
	return s.port.SetImpair([]impair.Spec{spec}, []impair.Spec{spec})
}

// runError converts the error of a simulation: a panic of the device or the case, or a hang.
func runError(err error) error {
	var (
		panicked *sim.PanicError
		deadlock *sim.DeadlockError
		limit    *sim.LimitError
		why      string
		waiting  []sim.WaitingProgram
	)
	switch {
	case errors.As(err, &panicked):
		return newCrashError(panicked.Value, panicked.Stack)
	case errors.As(err, &deadlock):
		why, waiting = fmt.Sprintf("no event is pending at %v", deadlock.Now), deadlock.Waiting
	case errors.As(err, &limit) && limit.Limit == "time":
		why, waiting = fmt.Sprintf("the time limit is reached at %v", limit.Now), limit.Waiting
	case errors.As(err, &limit):
		why, waiting = fmt.Sprintf("the limit of %d events is reached at %v", limit.Events, limit.Now), limit.Waiting
	default:
		return err
	}
	texts := make([]string, len(waiting))
	for i, w := range waiting {
		texts[i] = fmt.Sprintf("%s waits for %s since %v", w.Program, w.Reason, w.Since)
	}
	return &conformance.HangError{Waiting: why + ", and " + strings.Join(texts, ", ")}
}

// simWorld is the conformance.Runtime of a simulated case.
type simWorld struct {
	*sim.World
	tasks []*simTask
}

// currentProc returns the simulated program that calls the method named call. It panics outside of
// simulated programs, which alone can block.
func (w *simWorld) currentProc(call string) *sim.Proc {
	p := w.Current()
	if p == nil {
		panic(call + " outside of the case and its tasks: start what blocks with Bench.Go")
	}
	return p
}

// Now implements verbs.Proc.
func (w *simWorld) Now() time.Duration { return time.Duration(w.World.Now()) }

// Sleep implements verbs.Proc.
func (w *simWorld) Sleep(d time.Duration) { w.currentProc("Sleep").Sleep(d) }

// Compute implements verbs.Proc.
func (w *simWorld) Compute(d time.Duration) { w.currentProc("Compute").Compute(d) }

// Go implements conformance.Runtime.
func (w *simWorld) Go(name string, f func() error) conformance.Task {
	t := &simTask{w: w, name: name}
	t.proc = w.World.Go("task "+name, func(*sim.Proc) error {
		t.err = f()
		t.ended = true
		t.end.Broadcast()
		return nil
	})
	w.tasks = append(w.tasks, t)
	return t
}

// endTasks ends the tasks that still run after the case. It returns an error for each of them, and
// for each task that failed without a Wait.
func (w *simWorld) endTasks() error {
	var errs []error
	for _, t := range w.tasks {
		switch {
		case !t.ended:
			errs = append(errs, fmt.Errorf("task %q still runs after the case: wait for it", t.name), t.proc.Kill())
		case !t.waited && t.err != nil:
			errs = append(errs, fmt.Errorf("task %q, without Wait: %w", t.name, t.err))
		}
	}
	return errors.Join(errs...)
}

// simTask is a task of a simulated case.
type simTask struct {
	w             *simWorld
	name          string
	proc          *sim.Proc
	end           sim.Signal
	ended, waited bool
	err           error
}

// Wait implements conformance.Task.
func (t *simTask) Wait(timeout time.Duration) error {
	p := t.w.currentProc("Wait")
	if !t.ended && !p.Wait(&t.end, sim.WaitReason("the end of task "+t.name), timeout) {
		return fmt.Errorf("task %s: %w", t.name, verbs.ErrTimeout)
	}
	t.waited = true
	return t.err
}

// pollTime is the virtual time of a poll without a result, so that polling advances time.
const pollTime = 50 * time.Nanosecond

// waitUntil waits until done returns true, which it checks after each broadcast of changed. It
// returns false after the timeout, which is at least pollTime; a negative timeout means none.
func (w *simWorld) waitUntil(changed *sim.Signal, reason sim.WaitReason, timeout time.Duration, done func() bool) bool {
	p := w.currentProc(string(reason))
	deadline := w.Now() + max(timeout, pollTime)
	for !done() {
		left := deadline - w.Now()
		if timeout < 0 {
			left = verbs.Forever
		} else if left <= 0 {
			return false
		}
		p.Wait(changed, reason, left)
	}
	return true
}
