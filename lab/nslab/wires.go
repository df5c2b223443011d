package nslab

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// spliced reports whether a cable must pass through user space: something
// happens to its packets by chance or by name, hosts on it may be kept apart or
// cut off, or it has properties that a veth pair has not. Everything else stays
// in the kernel, and is as fast as that.
func spliced(plan *lab.Plan) func(topology.Cable) bool {
	parted := slices.ContainsFunc(plan.Steps, func(s lab.Step) bool { return s.Do == scenarios.Partition })
	hosts := make(map[int]bool) // cables that end at one
	for i := range plan.Ports {
		hosts[plan.Ports[i].Cable] = hosts[plan.Ports[i].Cable] || plan.Ports[i].Host >= 0
	}
	cut := make(map[int]bool) // cables of hosts that go down
	for _, s := range plan.Steps {
		for _, port := range s.Ports {
			if cable := plan.Ports[port].Cable; s.Do == scenarios.Down && hosts[cable] {
				cut[cable] = true
			}
		}
	}
	return func(c topology.Cable) bool {
		i := slices.IndexFunc(plan.Topology.Cables, func(x topology.Cable) bool { return x.A.Same(c.A) })
		return plan.Touched(i) || shaped(c.Link) || parted && hosts[i] || cut[i]
	}
}

// shaped reports whether a cable is slower than the machine.
func shaped(l topology.Link) bool {
	return l.RateBps != 0 || l.Latency != 0 || l.QueueBytes != 0 || l.ECN != topology.ECN{}
}

// wires are the cables and switches that pass through user space.
type wires struct {
	plan     *lab.Plan
	switches []*uswitch.Switch
	epoch    time.Time // time 0 of the switches
	// netem is the fabric where the kernel impairs instead; nil if it does not.
	netem *netns.Fabric
	// impairable says that something may come to happen at any port.
	impairable bool
	capture    fabricFile
	// ways are the two directions of each of the plan's ports, out and in; nil
	// where the kernel carries the cable.
	ways  [][2]*way
	apart atomic.Pointer[parting] // nil while nothing is kept apart

	stop   context.CancelFunc
	run    sync.WaitGroup
	closed sync.Once
	mu     sync.Mutex
	errs   []error // of switches that failed
}

// newWires opens what user space has to carry, and lets everything pass until
// begin.
func newWires(plan *lab.Plan, fabric *netns.Fabric, opts StageOptions) (w *wires, err error) {
	w = &wires{plan: plan, ways: make([][2]*way, len(plan.Ports)), epoch: time.Now(), impairable: opts.Spliced}
	w.capture = fabricFile{opts: opts.Capture, epoch: w.epoch}
	if opts.Netem {
		w.netem = fabric
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, s := range fabric.UserCables() {
		if err := w.add(fabric, s.Cable.String(), []wireEnd{{s.A, s.Cable.A}, {s.B, s.Cable.B}}); err != nil {
			return w, err
		}
	}
	user := fabric.UserSwitches()
	for _, name := range slices.Sorted(maps.Keys(user)) {
		var ends []wireEnd
		for _, p := range user[name] {
			ends = append(ends, wireEnd{p.Device, p.Far})
		}
		if err := w.add(fabric, name, ends); err != nil {
			return w, err
		}
	}
	for _, some := range dealt(w.switches, runtime.GOMAXPROCS(0)) {
		w.run.Go(func() {
			if err := uswitch.Run(ctx, some...); err != nil && ctx.Err() == nil {
				w.fail(err)
			}
		})
	}
	return w, nil
}

// dealt deals switches out to threads, not more than there are processors: a
// fabric of 64 cables does not wake faster by 64 of them.
func dealt(all []*uswitch.Switch, threads int) [][]*uswitch.Switch {
	hands := make([][]*uswitch.Switch, min(len(all), threads))
	for i, s := range all {
		hands[i%len(hands)] = append(hands[i%len(hands)], s)
	}
	return hands
}

// wireEnd is an interface in the core namespace, and the port at the other end
// of its cable.
type wireEnd struct {
	device string
	far    topology.Port
}

// add opens a switch, and finds which of the plan's directions pass it.
func (w *wires) add(fabric *netns.Fabric, name string, ends []wireEnd) error {
	cfg := uswitch.Config{Name: name, Open: fabric.Core().Do, Epoch: w.epoch}
	for _, e := range ends {
		cfg.Ports = append(cfg.Ports, uswitch.PortConfig{Interface: e.device, Name: e.far.String()})
	}
	s, err := uswitch.New(cfg)
	if err != nil {
		return err
	}
	w.switches = append(w.switches, s)
	for i := range w.plan.Ports {
		p := &w.plan.Ports[i]
		for k, e := range ends {
			if e.far.Same(p.Port) {
				cable := w.plan.Topology.Cables[p.Cable]
				w.ways[i] = [2]*way{
					lab.Out: {wires: w, of: i, way: lab.Out, at: s, port: k, dir: uswitch.In, shape: shapeOut(p, cable)},
					lab.In:  {wires: w, of: i, way: lab.In, at: s, port: k, dir: uswitch.Out, shape: shapeIn(w.plan, p, cable)},
				}
			}
		}
	}
	return nil
}

// begin lets the scenario's time start: what it says of packets holds from then
// on.
func (w *wires) begin(start time.Time) error {
	var errs []error
	for i := range w.ways {
		p := &w.plan.Ports[i]
		for d, cfg := range []*lab.Impairments{lab.Out: &p.Out, lab.In: &p.In} {
			if w.netem != nil && len(cfg.Specs) > 0 {
				errs = append(errs, w.setNetem(i, lab.Way(d), cfg.Specs))
			}
			if way := w.ways[i][d]; way != nil {
				errs = append(errs, way.begin(cfg, start.Sub(w.epoch)))
			}
		}
	}
	return errors.Join(errs...)
}

// set replaces what packets meet by chance.
func (w *wires) set(all []lab.Replace) error {
	errs := make([]error, 0, len(all))
	for _, r := range all {
		if w.netem != nil {
			errs = append(errs, w.setNetem(r.Port, r.Way, r.Specs))
			continue
		}
		errs = append(errs, w.ways[r.Port][r.Way].set(r.Specs))
	}
	return errors.Join(errs...)
}

// setLink cuts the cable at a port, or joins it again. Where it passes through
// user space that happens in the switch, in an instant and on time: taking an
// interface down needs the lock that all network configuration of the machine
// shares, and has come 300 ms late. Both directions lose, and count, everything,
// as in simulation. A NIC does not lose its carrier then, and finds out by what
// does not arrive; the emulated ones never look at theirs. Between switches it is
// the kernel's affair: they have to find another way.
func (w *wires) setLink(fabric *netns.Fabric, port int, up bool) error {
	p := &w.plan.Ports[port]
	if w.ways[port][lab.Out] == nil || p.Host < 0 {
		return fabric.SetLink(p.Name, up)
	}
	var errs []error
	for i := range w.plan.Ports { // two if it joins two hosts
		if y := w.ways[i][lab.Out]; y != nil && w.plan.Ports[i].Cable == p.Cable {
			errs = append(errs, y.at.SetPort(y.port, up))
		}
	}
	return errors.Join(errs...)
}

func (w *wires) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

// close ends the switches and waits for them. Counters can be read afterwards.
func (w *wires) close() error {
	w.closed.Do(func() {
		w.stop()
		w.run.Wait()
		for _, s := range w.switches {
			if err := s.Close(); err != nil {
				w.fail(err)
			}
		}
		if err := w.capture.close(); err != nil {
			w.fail(err)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.errs...)
}
