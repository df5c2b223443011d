package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// SimOptions is how a simulated bench is made. The zero value is how it should be.
type SimOptions struct {
	// MaxTime and MaxEvents end a case that comes to no end: how much virtual time
	// may pass, and how much may happen. 2 h and 20 million if 0.
	MaxTime   time.Duration
	MaxEvents uint64
	// Claims are what the devices under test have less of than others of their
	// provider.
	Claims nics.Claims
	// VerbTime is how long each verb call of the device takes, as behind a slow agent.
	// Cases on such a bench use the timers of real time.
	VerbTime time.Duration
	// Trace, if not nil, gets a line of text for everything that happens in the
	// world of a case.
	Trace io.Writer
}

const (
	defaultMaxTime   = 2 * time.Hour
	defaultMaxEvents = 20_000_000
)

// wayTime is how long a packet is on its way between the device and its peer.
const (
	wayTime   = 2 * cableTime // there is a switch in between
	cableTime = 500 * time.Nanosecond
)

// Simulation is a lab in which every case has a world of its own.
type Simulation struct {
	provider *nics.Provider
	opt      SimOptions
}

var _ conformance.Lab = (*Simulation)(nil)

// InSimulation returns a lab of simulated devices.
func InSimulation(p *nics.Provider, opt SimOptions) *Simulation {
	if opt.MaxTime == 0 {
		opt.MaxTime = defaultMaxTime
	}
	if opt.MaxEvents == 0 {
		opt.MaxEvents = defaultMaxEvents
	}
	return &Simulation{p, opt}
}

// Close has nothing to let go of.
func (l *Simulation) Close() error { return nil }

// Try implements conformance.Lab.
func (l *Simulation) Try(ctx context.Context, job conformance.Job, body func(*conformance.Bench) error) (err error) {
	wish, err := read(l.provider, l.opt.Claims, &job)
	if err != nil {
		return err
	}
	if job.Record == nil {
		job.Record = new(conformance.Record)
	}
	s := &simulated{wish: wish, verbTime: l.opt.VerbTime, world: &simWorld{World: sim.New(sim.Config{
		Seed: job.Seed, MaxTime: mono.Time(l.opt.MaxTime), MaxEvents: l.opt.MaxEvents, Trace: l.opt.Trace,
		Stop: func() error { return context.Cause(ctx) },
	})}}
	defer s.world.Close()
	defer func() { // in an event: of the device's, or of the world's
		if v := recover(); v != nil {
			err = crashed(v, debug.Stack())
		}
	}()
	b, err := s.build(l.provider, &job)
	if err != nil {
		return err
	}
	var outcome error
	s.world.World.Go("case", func(*sim.Proc) error {
		outcome = body(b)
		outcome = s.finish(outcome)
		return nil
	})
	if err := s.world.RunPrograms(); err != nil {
		return ended(err)
	}
	return outcome
}

// simulated is a bench in its world.
type simulated struct {
	wish *wish
	// verbTime is SimOptions.VerbTime.
	verbTime time.Duration
	world    *simWorld
	net      *sim.Net
	port     *sim.Port
	wire     *simWire
	at       nics.Place
	devices  []verbs.Context // the one under test and its partners
}

// build makes the bench, at time 0.
func (s *simulated) build(p *nics.Provider, job *conformance.Job) (*conformance.Bench, error) {
	w := s.wish
	var err error
	if s.net, err = sim.NewNet(s.world.World, sim.NetConfig{Name: "net"}); err != nil {
		return nil, err
	}
	if s.port, err = s.attach("device", append(w.local[:len(w.local):len(w.local)], hostAddr(w.family, cable)), 0); err != nil {
		return nil, w.refused(err)
	}
	// The wire sees what comes for the peer before it is there: it keeps nothing.
	const keepsNothing = 1
	peer, err := s.attach("peer", append(hostAddrs(4, firstPeer, peers), hostAddrs(6, firstPeer, peers)...), keepsNothing)
	if err != nil {
		return nil, err
	}
	s.at = w.place(simRateBps)
	s.at.VerbTime = s.verbTime
	b := &conformance.Bench{
		World: s.world, Local: w.local, Peers: w.peers, Virtual: s.verbTime == 0, MTU: w.mtu,
		Rand: caseRand(job.Seed), Record: job.Record, Partner: s.partner, SetLink: s.setLink, SetAddress: s.setAddress, SetHandler: s.setPath,
	}
	if p.Streams {
		b.SetHandler, b.SetAddress = unshakenStreams, settledStreams
		b.Streams = job.Record.RecordedStreams(s.world, newSimStreams(s.world, peer, w.peers[0]))
	} else {
		s.wire = &simWire{w: s.world, device: s.port, peer: peer, wish: w}
		s.net.SetTap(s.wire.see)
		s.at.Link = s.wire.around
		b.Wire = job.Record.Recorded(s.world, s.wire)
	}
	s.devices = make([]verbs.Context, 1)
	if err := s.open(b); err != nil {
		return nil, err
	}
	b.Reopen = func() error {
		if err := s.devices[0].Close(); err != nil {
			return err
		}
		return s.open(b)
	}
	attr, err := b.Device.QueryDevice()
	b.Caps = attr.Caps
	return b, err
}

// open opens the device under test.
func (s *simulated) open(b *conformance.Bench) error {
	d, err := s.wish.device.InWorld(s.world.World, s.port, s.at)
	if err != nil {
		return s.wish.refused(err)
	}
	s.devices[0], b.Device = d, s.wish.claims.Of(d)
	return nil
}

func (s *simulated) attach(name string, addrs []netip.Addr, rxQueueBytes int) (*sim.Port, error) {
	return s.net.Attach(sim.PortConfig{
		Name: name, Addrs: addrs,
		Link: sim.LinkConfig{Latency: cableTime, MTU: s.wish.mtu, RxQueueBytes: rxQueueBytes},
	})
}

// partner opens another device.
func (s *simulated) partner() (verbs.Context, error) {
	n := len(s.devices)
	name := fmt.Sprintf("partner%d", n)
	addr := hostAddr(s.wish.family, firstPartner+byte(n-1))
	port, err := s.attach(name, []netip.Addr{addr}, 0)
	if err != nil {
		return nil, err
	}
	d, err := s.wish.partner.InWorld(s.world.World, port, nics.Place{Name: name, Addr: addr, LineRateBps: simRateBps, PKeys: partitions()})
	if err != nil {
		return nil, s.wish.refused(err)
	}
	s.devices = append(s.devices, d)
	return d, nil
}

// setLink takes the device's cable out, or puts it in.
func (s *simulated) setLink(up bool) error {
	if up {
		s.port.SetUp()
		return nil
	}
	s.port.SetDown()
	if s.wire != nil {
		s.wire.cut()
	}
	return nil
}

// setAddress takes an address from the device's port, or gives it back.
func (s *simulated) setAddress(a netip.Addr, present bool) error {
	switch has := slices.Contains(s.port.Addrs(), a); {
	case !slices.Contains(s.wish.local, a):
		return notLocal(a, s.wish.local)
	case has == present:
		return nil
	case present:
		return s.port.AddAddr(a)
	}
	return s.port.RemoveAddr(a)
}

// notLocal refuses an address that is none of the device's.
func notLocal(a netip.Addr, local []netip.Addr) error {
	return fmt.Errorf("%v is none of the device's addresses, which are %v", a, local)
}

// settledStreams is setAddress where streams go on without their addresses.
func settledStreams(netip.Addr, bool) error {
	return cannot("a host that loses an address, without which its streams would go on here")
}

// setPath has packets meet with all that on the device's cable.
func (s *simulated) setPath(p conformance.Path) error {
	spec := impair.Spec{LossPPM: p.LossPPM, DuplicatePPM: p.DuplicatePPM, Jitter: p.Jitter, KeepOrder: p.KeepOrder}
	if p == (conformance.Path{}) {
		return s.port.SetImpair(nil, nil)
	}
	return s.port.SetImpair([]impair.Spec{spec}, []impair.Spec{spec})
}

// unshakenStreams is setPath where there are no packets: streams arrive as they are.
func unshakenStreams(p conformance.Path) error {
	if p == (conformance.Path{}) {
		return nil
	}
	return cannot("a bad path for streams, which have no packets here")
}

// finish closes what the case leaves open, as a program of the world. What the case
// said counts before what is found out here.
func (s *simulated) finish(outcome error) error {
	errs := []error{s.world.endTasks()}
	for _, d := range s.devices {
		if err := d.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", d.Info().Name, err))
		}
	}
	if outcome != nil {
		return outcome
	}
	return errors.Join(errs...)
}

// ended says what it means that a world has ended with an error.
func ended(err error) error {
	var (
		panicked *sim.PanicError
		deadlock *sim.DeadlockError
		limit    *sim.LimitError
	)
	switch {
	case errors.As(err, &panicked):
		return crashed(panicked.Value, panicked.Stack)
	case errors.As(err, &deadlock):
		return &conformance.HangError{Waiting: fmt.Sprintf("nothing is left to happen at %v, and %s", deadlock.Now, waiting(deadlock.Waiting))}
	case errors.As(err, &limit) && limit.Limit == "time":
		return &conformance.HangError{Waiting: fmt.Sprintf("it is %v, and %s", limit.Now, waiting(limit.Waiting))}
	case errors.As(err, &limit):
		return &conformance.HangError{Waiting: fmt.Sprintf("%d events have happened by %v, and %s", limit.Events, limit.Now, waiting(limit.Waiting))}
	}
	return err
}

// waiting tells who waits for what.
func waiting(all []sim.WaitingProgram) string {
	told := make([]string, len(all))
	for i, w := range all {
		told[i] = fmt.Sprintf("%s waits for %s since %v", w.Program, w.Reason, w.Since)
	}
	return strings.Join(told, ", ")
}
