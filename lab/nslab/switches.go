package nslab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// needsUserSpace returns a predicate for cables that must pass through user space: those with
// impairments, events, or a rate, latency or queue; all cables of hosts if the plan has a
// partition, else those that a fault takes down. The kernel carries the others.
func needsUserSpace(plan *lab.Plan) func(topology.Cable) bool {
	hasPartition := slices.ContainsFunc(plan.Steps, func(s lab.Step) bool { return s.Do == scenarios.Partition })
	hostCables := make(map[int]bool) // by index
	for i := range plan.Ports {
		hostCables[plan.Ports[i].Cable] = hostCables[plan.Ports[i].Cable] || plan.Ports[i].Host >= 0
	}
	goesDown := make(map[int]bool) // the cables of hosts that a fault takes down
	for _, s := range plan.Steps {
		for _, port := range s.Ports {
			if cable := plan.Ports[port].Cable; s.Do == scenarios.Down && hostCables[cable] {
				goesDown[cable] = true
			}
		}
	}
	return func(c topology.Cable) bool {
		i := slices.IndexFunc(plan.Topology.Cables, func(x topology.Cable) bool { return x.A.Same(c.A) })
		return plan.ImpairsCable(i) || shaped(c.Link) || hasPartition && hostCables[i] || goesDown[i]
	}
}

// shaped reports whether a cable has a rate, latency or queue.
func shaped(l topology.Link) bool {
	return l.RateBps != 0 || l.Latency != 0 || l.QueueBytes != 0 || l.ECN != topology.ECN{}
}

// switchSet has the user-space switches of a fabric, and the directions that pass through them.
type switchSet struct {
	plan     *lab.Plan
	fabric   *netns.Fabric
	switches []*uswitch.Switch
	epoch    time.Time // time 0 of the switches
	// netem is set if the kernel's netem impairs packets instead.
	netem *netns.Fabric
	// handleAll installs a handler in every direction, so that a capture has the packets of all.
	handleAll bool
	capture   fabricCapturer
	// directions has Out and In of each port of the plan; nil if the kernel carries the cable.
	directions  [][2]*portDirection
	partitioned atomic.Pointer[partitionGroups] // nil without a partition

	stop   context.CancelFunc
	run    sync.WaitGroup
	closed sync.Once
	mu     sync.Mutex
	errs   []error // of switches that failed
}

// newSwitchSet opens and starts the user-space switches of the fabric. They forward packets
// unchanged until w.begin starts the impairments.
func newSwitchSet(plan *lab.Plan, fabric *netns.Fabric, opts TestbedOptions) (w *switchSet, err error) {
	w = &switchSet{plan: plan, fabric: fabric, directions: make([][2]*portDirection, len(plan.Ports)), epoch: time.Now(), handleAll: opts.UserSpace}
	w.capture = fabricCapturer{opts: opts.Capture, epoch: w.epoch}
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
	for _, s := range fabric.UserCables() { // each is a switch with two ports
		if err := w.addSwitch(fabric, s.Cable.String(), []switchPort{{s.A, s.Cable.A}, {s.B, s.Cable.B}}); err != nil {
			return w, err
		}
	}
	userSwitches := fabric.UserSwitches()
	for _, name := range slices.Sorted(maps.Keys(userSwitches)) {
		var ends []switchPort
		for _, p := range userSwitches[name] {
			ends = append(ends, switchPort{p.Device, p.Far})
		}
		if err := w.addSwitch(fabric, name, ends); err != nil {
			return w, err
		}
	}
	groups := make([][]*uswitch.Switch, min(len(w.switches), runtime.GOMAXPROCS(0))) // a thread for each
	for i, s := range w.switches {
		groups[i%len(groups)] = append(groups[i%len(groups)], s)
	}
	for _, group := range groups {
		w.run.Go(func() {
			if err := uswitch.Run(ctx, group...); err != nil && ctx.Err() == nil {
				w.fail(err)
			}
		})
	}
	return w, nil
}

// switchPort is an interface in the core namespace, and the port at the other end of its cable.
type switchPort struct {
	device string
	far    topology.Port
}

// addSwitch opens a switch with a port for each of ends. If the port at the far end is in the plan,
// it adds both directions of that port: packets that leave it (Out) enter the switch (In).
func (w *switchSet) addSwitch(fabric *netns.Fabric, name string, ends []switchPort) error {
	cfg := uswitch.Config{Name: name, InNamespace: fabric.Core().Do, Epoch: w.epoch}
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
			if !e.far.Same(p.Port) {
				continue
			}
			cable := w.plan.Topology.Cables[p.Cable]
			out := &portDirection{switches: w, planPort: i, dir: lab.Out, sw: s, swPort: k, swDir: uswitch.In}
			in := &portDirection{switches: w, planPort: i, dir: lab.In, sw: s, swPort: k, swDir: uswitch.Out}
			fromSwitch := p.Host < 0 // a switch drops packets that its queue cannot hold; a host waits
			out.linkSpecs = linkSpecs(cable.Link, fromSwitch)
			// Packets to p meet the link's impairments in the Out of the other end, if that is a host. A
			// switch at the other end has no entry in plan.Ports, so In applies them.
			if _, isHost := w.plan.Topology.Host(cable.Other(p.Port).Node); !isHost {
				const finiteQueue = true
				in.linkSpecs = linkSpecs(cable.Link, finiteQueue)
			}
			w.directions[i] = [2]*portDirection{lab.Out: out, lab.In: in}
		}
	}
	return nil
}

// setLinks implements network. It sets the veth interfaces up or down.
func (w *switchSet) setLinks(pattern string, up bool) error {
	ports, err := w.plan.Topology.Match(pattern)
	for _, p := range ports {
		err = errors.Join(err, w.fabric.SetLink(p.String(), up))
	}
	return err
}

// begin implements network: it starts the impairments of every port, in the kernel (netem) or in
// the user-space switch that carries the port's cable.
func (w *switchSet) begin(start time.Time) error {
	var errs []error
	for i := range w.directions {
		p := &w.plan.Ports[i]
		for dir, impairments := range []*lab.Impairments{lab.Out: &p.Out, lab.In: &p.In} {
			if w.netem != nil && len(impairments.Specs) > 0 {
				errs = append(errs, w.setNetem(i, lab.Direction(dir), impairments.Specs))
			}
			if d := w.directions[i][dir]; d != nil { // nil if the kernel carries the cable
				errs = append(errs, d.begin(impairments, start.Sub(w.epoch)))
			}
		}
	}
	return errors.Join(errs...)
}

// setSpecs implements network: in the switches or by netem.
func (w *switchSet) setSpecs(all []lab.SpecChange) error {
	errs := make([]error, 0, len(all))
	for _, change := range all {
		if w.netem != nil {
			errs = append(errs, w.setNetem(change.Port, change.Direction, change.Specs))
			continue
		}
		if w.directions[change.Port][change.Direction] == nil {
			return fmt.Errorf("%s: the kernel carries this cable: it can go down, but not be impaired", w.plan.Ports[change.Port].Name)
		}
		errs = append(errs, w.directions[change.Port][change.Direction].setSpecs(change.Specs))
	}
	return errors.Join(errs...)
}

// setLink sets the link of a port up or down. For a host's cable in user space the
// switch drops all packets in both directions, as in simulation. Setting the
// interface down would take the kernel's global RTNL lock, which took up to
// 300 ms in tests. Between switches the kernel sets the link, so that routes change.
func (w *switchSet) setLink(port int, up bool) error {
	p := &w.plan.Ports[port]
	if w.directions[port][lab.Out] == nil || p.Host < 0 {
		return w.fabric.SetLink(p.Name, up)
	}
	var errs []error
	for i := range w.plan.Ports { // a cable between two hosts has two ports
		if d := w.directions[i][lab.Out]; d != nil && w.plan.Ports[i].Cable == p.Cable {
			errs = append(errs, d.sw.SetPort(d.swPort, up))
		}
	}
	return errors.Join(errs...)
}

// fail records the error of a switch or of the capture, for close to return.
func (w *switchSet) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

// close stops the switches and waits for them. Counters can be read afterwards.
func (w *switchSet) close() error {
	w.closed.Do(func() {
		w.stop()
		w.run.Wait()
		for _, s := range w.switches {
			if err := s.Close(); err != nil {
				w.fail(err)
			}
		}
		if err := closeCapture(w.capture.file, w.capture.to); err != nil {
			w.fail(err)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.errs...)
}

// checkNetem returns an error for each part of a plan that netem does not support.
func checkNetem(plan *lab.Plan) error {
	cannot := func(key, what string) error {
		return plan.Scenario.Errorf(key, "the kernel's netem cannot %s: use the user-space switch", what)
	}
	var errs []error
	if len(plan.Scenario.Events) > 0 {
		errs = append(errs, cannot("events", "change single packets"))
	}
	for i := range plan.Steps {
		if s := &plan.Steps[i]; s.Do == scenarios.Partition {
			errs = append(errs, cannot(fmt.Sprintf("faults[%d]", s.Fault), "partition hosts"))
		}
		for _, set := range plan.Steps[i].Set {
			if _, err := netemSpec(set.Specs, set.Direction); err != nil {
				errs = append(errs, plan.Scenario.Errorf(fmt.Sprintf("faults[%d].set", plan.Steps[i].Fault), "%w", err))
			}
		}
	}
	for i := range plan.Ports {
		for dir, m := range []*lab.Impairments{lab.Out: &plan.Ports[i].Out, lab.In: &plan.Ports[i].In} {
			if _, err := netemSpec(m.Specs, lab.Direction(dir)); err != nil {
				errs = append(errs, plan.Scenario.Errorf("impair", "%s: %w", plan.Ports[i].Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// netemSpec converts the impairments of a direction to netem's parameters, or returns an error if
// netem does not support them.
func netemSpec(specs []impair.Spec, dir lab.Direction) (n netns.NetemSpec, err error) {
	if len(specs) == 0 {
		return n, nil
	}
	if len(specs) > 1 || dir == lab.In {
		return n, errors.New("netem supports one impairment of the packets that a port sends, and none of those it receives: write one impairment, with \"way: out\"")
	}
	s := specs[0]
	n = netns.NetemSpec{
		Delay: s.Delay, Jitter: s.Jitter, LossPPM: s.LossPPM, DuplicatePPM: s.DuplicatePPM, ReorderPPM: s.ReorderPPM, CorruptPPM: s.CorruptPPM,
	}
	unsupported := s
	unsupported.Delay, unsupported.Jitter, unsupported.LossPPM, unsupported.DuplicatePPM, unsupported.ReorderPPM, unsupported.CorruptPPM = 0, 0, 0, 0, 0, 0
	unsupported.ReorderDelay, unsupported.DuplicateDelay = 0, 0 // accepted: the second is ignored, the first used below if there is no Delay
	if unsupported != (impair.Spec{}) {
		return n, errors.New("netem supports loss, delay, jitter, duplicate, reorder and corrupt only, without \"from\" and \"until\"")
	}
	if n.ReorderPPM > 0 && n.Delay == 0 {
		// impair.Spec delays the packets that it reorders. netem sends those at once and delays all
		// others: let it "reorder" the packets that are to keep their time.
		n.Delay = max(s.ReorderDelay, time.Microsecond)
		n.ReorderPPM = impair.PPM - n.ReorderPPM
	}
	return n, nil
}

// setNetem configures netem for packets that a port sends. Of received packets (lab.In) it only
// checks that specs is empty, because netem cannot impair them.
func (w *switchSet) setNetem(port int, dir lab.Direction, specs []impair.Spec) error {
	spec, err := netemSpec(specs, dir)
	if err != nil || dir == lab.In {
		return err
	}
	return w.netem.Netem(w.plan.Ports[port].Name, spec)
}
