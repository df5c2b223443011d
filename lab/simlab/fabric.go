package simlab

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// Defaults of links: 100 Gb/s, about a hundred metres, Ethernet framing.
const (
	defaultRate     = 100_000_000_000
	defaultLatency  = time.Microsecond
	ethernetFraming = 38 // bytes: preamble, header, FCS and gap
)

// linkConfig converts the settings of a cable, with the defaults of a simulation.
func linkConfig(l topology.Link) sim.LinkConfig {
	return sim.LinkConfig{
		RateBps: cmp.Or(l.RateBps, defaultRate), Latency: cmp.Or(l.Latency, defaultLatency), MTU: l.MTU,
		OverheadBytes: ethernetFraming, QueueBytes: l.QueueBytes,
		ECN: sim.ECNConfig{MinBytes: l.ECN.MinBytes, MaxBytes: l.ECN.MaxBytes, MaxPPM: l.ECN.MaxPPM},
	}
}

// simPort is a port of the plan in the simulation: a *sim.Port or a *sim.Trunk.
type simPort interface {
	SetDown()
	SetUp()
	SetImpair(out, in []impair.Spec) error
	Impairments() (out, in *impair.Pipe)
}

// fabric is the simulated network of a scenario with its NICs.
type fabric struct {
	plan     *lab.Plan
	capture  *capture         // nil if there is none
	nets     map[int]*sim.Net // by rail
	switches map[string]*sim.Switch
	simPorts []simPort     // by index in Plan.Ports
	specs    [][2]specList // random impairments, by index in Plan.Ports and lab.Direction
	ports    [][]*sim.Port // by host and NIC
	nics     [][]workload.NIC

	// For a provider over streams: by index in Plan.Ports (nil for trunks), by rail
	// and address, and by port.
	streamPorts      []*streamPort
	streamPortByAddr map[int]map[netip.Addr]*streamPort
	streamPortOf     map[*sim.Port]*streamPort
}

type specList = []impair.Spec

// build creates the networks, and a device on every port of a host. f.specs has the current
// impairments, for setSpecs.
func (f *fabric) build(r *run) error {
	f.plan, f.capture = r.plan, r.capture
	f.nets, f.switches = make(map[int]*sim.Net), make(map[string]*sim.Switch)
	hosts := len(r.plan.Topology.Hosts)
	f.ports, f.nics = make([][]*sim.Port, hosts), make([][]workload.NIC, hosts)
	f.streamPorts = make([]*streamPort, len(r.plan.Ports))
	f.streamPortByAddr, f.streamPortOf = make(map[int]map[netip.Addr]*streamPort), make(map[*sim.Port]*streamPort)
	for i := range r.plan.Ports {
		p := &r.plan.Ports[i]
		n, err := f.net(r.world, p.Rail)
		if err != nil {
			return err
		}
		f.specs = append(f.specs, [2]specList{p.Out.Specs, p.In.Specs})
		if p.Host < 0 { // a cable between switches
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

// net returns the network of a rail, which it creates on first use. A network has one switch by
// default, so net adds switches only if the rail has several. Without switches in the topology, the
// network is a cable between two hosts.
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

// addTrunk creates the cable between two switches that port p of the plan stands for.
func (f *fabric) addTrunk(n *sim.Net, p *lab.Port) error {
	cable := f.plan.Topology.Cables[p.Cable]
	t, err := n.AddTrunk(sim.TrunkConfig{
		Name: p.Name, A: f.switches[p.Node], B: f.switches[cable.Other(p.Port).Node],
		Link: linkConfig(cable.Link), AB: p.Out.Config, BA: p.In.Config,
	})
	f.simPorts = append(f.simPorts, t)
	return err
}

// addPort creates port i of the plan, which is a port of a host, and opens a device on it. In its
// configuration, Up is the direction from the host to the network, and Down the other direction.
func (f *fabric) addPort(r *run, n *sim.Net, i int) error {
	s, p := r.plan.Scenario, &r.plan.Ports[i]
	cable := r.plan.Topology.Cables[p.Cable]
	nic, _ := r.plan.Topology.NIC(p.Port)
	addr := nic.Addr(s.Fabric.IPv4)
	cfg := sim.PortConfig{
		Name: p.Name, Addrs: []netip.Addr{addr}, Link: linkConfig(cable.Link), Up: p.Out.Config, Down: p.In.Config,
		Switch: f.switches[cable.Other(p.Port).Node],
	}
	if r.plan.Provider.OverTCP { // streamPort applies the impairments
		cfg.Up, cfg.Down = impair.Config{}, impair.Config{}
	}
	port, err := n.Attach(cfg)
	if err != nil {
		return err
	}
	provider, err := lab.NICs(s, p.Node, r.opts.Defects...)
	if err != nil {
		return err
	}
	nicConfig := nics.NICConfig{Name: p.Name, Addr: addr, LineRateBps: cfg.Link.RateBps}
	if r.plan.Provider.OverTCP {
		if err := f.addStreams(r.world, n, i, addr, port); err != nil {
			return err
		}
		nicConfig.WrapStreams = func(n link.StreamNet) link.StreamNet {
			f.streamPorts[i].StreamNet = n
			return f.streamPorts[i]
		}
	}
	if f.capture != nil {
		f.capture.addPort(port)
	}
	d, err := provider.InWorld(r.world, port, nicConfig)
	if err != nil {
		return err
	}
	f.simPorts = append(f.simPorts, port)
	f.ports[p.Host] = append(f.ports[p.Host], port)
	f.nics[p.Host] = append(f.nics[p.Host], workload.NIC{Device: d, Addr: addr, Rail: p.Rail})
	return nil
}

// addStreams creates the streamPort that impairs the TCP streams of port i of the plan, at addr.
func (f *fabric) addStreams(w *sim.World, n *sim.Net, i int, addr netip.Addr, port *sim.Port) (err error) {
	rail := f.plan.Ports[i].Rail
	byAddr := f.streamPortByAddr[rail]
	if byAddr == nil {
		byAddr = make(map[netip.Addr]*streamPort)
		f.streamPortByAddr[rail] = byAddr
		n.SetStreamTap(f.streamTap)
	}
	if f.streamPorts[i], err = newStreamPort(w, f.plan, i, byAddr); err != nil {
		return err
	}
	byAddr[addr], f.streamPortOf[port] = f.streamPorts[i], f.streamPorts[i]
	return nil
}

// setSpecs replaces the random impairments of one direction of a port: in the port's pipe for TCP
// streams if it has one, else in the simulated network.
func (f *fabric) setSpecs(change lab.SpecChange) error {
	f.specs[change.Port][change.Direction] = change.Specs
	if p := f.streamPorts[change.Port]; p != nil {
		return p.pipes[change.Direction].SetSpecs(change.Specs)
	}
	both := &f.specs[change.Port] // SetImpair sets both directions
	return f.simPorts[change.Port].SetImpair(both[lab.Out], both[lab.In])
}

// partition executes a timed step of the scenario that partitions the network of every rail into
// groups of ports or, if step.Undo is set, ends the partition.
func (f *fabric) partition(step *lab.Step) {
	for rail := range len(f.nets) {
		n := f.nets[rail]
		if step.Undo {
			n.Heal()
			continue
		}
		groups := make([][]*sim.Port, len(step.Groups))
		for i, members := range step.Groups {
			for _, port := range members {
				if f.plan.Ports[port].Rail == rail {
					groups[i] = append(groups[i], f.simPorts[port].(*sim.Port))
				}
			}
		}
		n.Partition(groups...)
	}
}

// close closes every device.
func (f *fabric) close() error {
	var errs []error
	for _, host := range f.nics {
		for _, nic := range host {
			errs = append(errs, nic.Device.Close())
		}
	}
	return errors.Join(errs...)
}
