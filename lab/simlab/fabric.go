package simlab

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// The cable of a modern fabric, which holds where a scenario says nothing: 100
// Gb/s, some hundred metres, the framing of Ethernet.
const (
	defaultRate     = 100_000_000_000
	defaultLatency  = time.Microsecond
	ethernetFraming = 38
)

func linkConfig(l topology.Link) sim.LinkConfig {
	return sim.LinkConfig{
		RateBps: cmp.Or(l.RateBps, defaultRate), Latency: cmp.Or(l.Latency, defaultLatency), MTU: l.MTU,
		OverheadBytes: ethernetFraming, QueueBytes: l.QueueBytes,
		ECN: sim.ECNConfig{MinBytes: l.ECN.MinBytes, MaxBytes: l.ECN.MaxBytes, MaxPPM: l.ECN.MaxPPM},
	}
}

// place is a port of the plan in the world: a host's, or a trunk.
type place interface {
	SetDown()
	SetUp()
	SetImpair(out, in []impair.Spec) error
	Impairments() (out, in *impair.Pipe)
}

// fabric is the network of a scenario, and the NICs on it.
type fabric struct {
	plan     *lab.Plan
	capture  *capture         // nil if there is none
	nets     map[int]*sim.Net // by rail
	switches map[string]*sim.Switch
	places   []place       // by index in Plan.Ports
	specs    [][2]specList // that hold at each place, out and in
	ports    [][]*sim.Port // by host and NIC
	devices  [][]verbs.Context
	addrs    [][]netip.Addr
	rails    [][]int

	// Of a provider that talks over streams: by index in Plan.Ports, nil for trunks,
	// and by rail and address.
	streams  []*streamPort
	byAddr   map[int]map[netip.Addr]*streamPort
	streamOf map[*sim.Port]*streamPort
}

type specList = []impair.Spec

// build makes the networks, and a device on every port of a host.
func (f *fabric) build(r *run) error {
	f.plan, f.capture = r.plan, r.capture
	f.nets, f.switches = make(map[int]*sim.Net), make(map[string]*sim.Switch)
	hosts := len(r.plan.Topology.Hosts)
	f.ports, f.devices = make([][]*sim.Port, hosts), make([][]verbs.Context, hosts)
	f.addrs, f.rails = make([][]netip.Addr, hosts), make([][]int, hosts)
	f.streams = make([]*streamPort, len(r.plan.Ports))
	f.byAddr, f.streamOf = make(map[int]map[netip.Addr]*streamPort), make(map[*sim.Port]*streamPort)
	for i := range r.plan.Ports {
		p := &r.plan.Ports[i]
		n, err := f.net(r.world, p.Rail)
		if err != nil {
			return err
		}
		f.specs = append(f.specs, [2]specList{p.Out.Specs, p.In.Specs})
		if p.Host < 0 {
			err = f.addTrunk(n, p)
		} else {
			err = f.addPort(r, n, i)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", r.plan.Scenario.Name, p.Name, err)
		}
	}
	return nil
}

// net returns the network of a rail, and makes it first with its switches. One
// switch alone needs none of its own.
func (f *fabric) net(w *sim.World, rail int) (*sim.Net, error) {
	if n := f.nets[rail]; n != nil {
		return n, nil
	}
	var switches []topology.Switch
	for _, s := range f.plan.Topology.Switches {
		if s.Rail == rail {
			switches = append(switches, s)
		}
	}
	n, err := sim.NewNet(w, sim.NetConfig{Name: lab.RailName(rail), Cable: len(switches) == 0, Dissector: f.plan.Provider.Dissector})
	if err != nil {
		return nil, err
	}
	f.nets[rail] = n
	if len(switches) < 2 {
		return n, nil
	}
	for _, s := range switches {
		if f.switches[s.Name], err = n.AddSwitch(sim.SwitchConfig{Name: s.Name, Routed: s.Routed}); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (f *fabric) addTrunk(n *sim.Net, p *lab.Port) error {
	cable := f.plan.Topology.Cables[p.Cable]
	t, err := n.AddTrunk(sim.TrunkConfig{
		Name: p.Name, A: f.switches[p.Node], B: f.switches[cable.Other(p.Port).Node],
		Link: linkConfig(cable.Link), AB: p.Out.Config, BA: p.In.Config,
	})
	f.places = append(f.places, t)
	return err
}

func (f *fabric) addPort(r *run, n *sim.Net, i int) error {
	s, p := r.plan.Scenario, &r.plan.Ports[i]
	cable := f.plan.Topology.Cables[p.Cable]
	nic, _ := f.plan.Topology.NIC(p.Port)
	addr := nic.Addr(s.Fabric.IPv4)
	cfg := sim.PortConfig{
		Name: p.Name, Addrs: []netip.Addr{addr}, Link: linkConfig(cable.Link), Up: p.Out.Config, Down: p.In.Config,
		Switch: f.switches[cable.Other(p.Port).Node],
	}
	if r.plan.Provider.Streams { // its segments meet these elsewhere: see stream
		cfg.Up, cfg.Down = impair.Config{}, impair.Config{}
	}
	port, err := n.Attach(cfg)
	if err != nil {
		return err
	}
	open, err := lab.NICs(s, p.Node, r.opts.Quirks...)
	if err != nil {
		return err
	}
	at := nics.Place{Name: p.Name, Addr: addr, LineRateBps: cfg.Link.RateBps}
	if r.plan.Provider.Streams {
		if err := f.addStreams(r.world, n, i, addr, port); err != nil {
			return err
		}
		at.Streams = f.streams[i].around
	}
	if f.capture != nil {
		f.capture.watch(port)
	}
	d, err := open.InWorld(r.world, port, at)
	if err != nil {
		return err
	}
	f.places = append(f.places, port)
	f.ports[p.Host] = append(f.ports[p.Host], port)
	f.devices[p.Host] = append(f.devices[p.Host], d)
	f.addrs[p.Host] = append(f.addrs[p.Host], addr)
	f.rails[p.Host] = append(f.rails[p.Host], p.Rail)
	return nil
}

// addStreams makes what the streams of a port meet.
func (f *fabric) addStreams(w *sim.World, n *sim.Net, i int, addr netip.Addr, port *sim.Port) (err error) {
	rail := f.byAddr[f.plan.Ports[i].Rail]
	if rail == nil {
		rail = make(map[netip.Addr]*streamPort)
		f.byAddr[f.plan.Ports[i].Rail] = rail
		n.SetStreamTap(f.segment)
	}
	if f.streams[i], err = newStreamPort(w, f.plan, i, rail); err != nil {
		return err
	}
	rail[addr], f.streamOf[port] = f.streams[i], f.streams[i]
	return nil
}

// nics are what a rank finds on its host.
func (f *fabric) nics(host int) (all []workload.NIC) {
	for i, d := range f.devices[host] {
		all = append(all, workload.NIC{Device: d, Addr: f.addrs[host][i], Rail: f.rails[host][i]})
	}
	return all
}

// counters sums those of a host's NICs by name.
func (f *fabric) counters(host int) (sum []verbs.Counter) {
	index := make(map[string]int)
	for _, d := range f.devices[host] {
		for _, c := range d.Counters() {
			at, known := index[c.Name]
			if !known {
				at = len(sum)
				index[c.Name] = at
				sum = append(sum, verbs.Counter{Name: c.Name})
			}
			sum[at].Value += c.Value
		}
	}
	return sum
}

// setImpair replaces what one direction of a place does.
func (f *fabric) setImpair(set lab.Replace) error {
	f.specs[set.Port][set.Way] = set.Specs
	if p := f.streams[set.Port]; p != nil {
		return p.setSpecs(set.Way, set.Specs)
	}
	both := &f.specs[set.Port]
	return f.places[set.Port].SetImpair(both[lab.Out], both[lab.In])
}

// partition divides every rail, or joins it again.
func (f *fabric) partition(plan *lab.Plan, step *lab.Step) {
	for rail := range len(f.nets) {
		n := f.nets[rail]
		if step.Undo {
			n.Heal()
			continue
		}
		groups := make([][]*sim.Port, len(step.Groups))
		for i, g := range step.Groups {
			for _, k := range g {
				if plan.Ports[k].Rail == rail {
					groups[i] = append(groups[i], f.places[k].(*sim.Port))
				}
			}
		}
		n.Partition(groups...)
	}
}

// close closes every device.
func (f *fabric) close() error {
	var errs []error
	for _, host := range f.devices {
		for _, d := range host {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}
