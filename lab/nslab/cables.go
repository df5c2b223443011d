package nslab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
)

// cableSet is a network of cables in shared memory, one for each rail. Without impairments, faults
// and a capture, hosts are connected directly, and there are no switches.
type cableSet struct {
	plan     *lab.Plan
	files    []*os.File // by rail
	switches []*cableSwitch
	capture  *pcaplink.Capture // nil without
	file     *os.File          // of capture

	stop   context.CancelFunc
	run    sync.WaitGroup
	closed sync.Once
	err    error // of close
}

// openCables creates the cables of a plan, and starts a switch for each if opts demand one or the
// plan needs one. Packets are not impaired until the method begin is called.
func openCables(plan *lab.Plan, opts TestbedOptions) (*cableSet, error) {
	if opts.Netem {
		return nil, errors.New("netem impairs packets in the kernel, and a cable in shared memory bypasses it")
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &cableSet{plan: plan, stop: stop}
	switched := opts.UserSpace || opts.Capture.File != "" || slices.ContainsFunc(plan.Topology.Cables, needsUserSpace(plan))
	err := c.createCapture(opts.Capture)
	for rail := 0; rail < plan.Scenario.Fabric.RailCount() && err == nil; rail++ {
		err = c.add(ctx, rail, switched)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// add creates the cable of a rail and, if switched is set, starts its switch.
func (c *cableSet) add(ctx context.Context, rail int, switched bool) error {
	f, ports, err := createCable(c.plan, rail, switched)
	if err != nil {
		return err
	}
	c.files = append(c.files, f)
	if !switched {
		return nil
	}
	s, err := newCableSwitch(c.plan, f, ports, c.capture)
	if err != nil {
		return err
	}
	c.switches = append(c.switches, s)
	c.run.Go(func() { s.forward(ctx) })
	return nil
}

var errTrunks = errors.New("a cable in shared memory connects hosts with one switch at most, and this fabric has cables between switches: use namespaces, without 'cable: shm'")

// createCable creates the cable of a rail. The result ports has for each port of the cable the index
// of a port in plan.Ports. A NIC has an IPv6 address for each rank of its host, and a port of
// the cable for each address; the first port also has the IPv4 address.
func createCable(plan *lab.Plan, rail int, switched bool) (f *os.File, ports []int, err error) {
	cfg := shmlink.Config{Switch: switched}
	for i := range plan.Ports {
		p := &plan.Ports[i]
		if p.Rail != rail {
			continue
		}
		if p.Host < 0 {
			return nil, nil, errTrunks
		}
		nic, _ := plan.Topology.NIC(p.Port)
		first := len(cfg.Ports)
		cfg.MTU = max(cfg.MTU, plan.Topology.Cables[p.Cable].Link.MTU)
		for _, prefix := range nic.Addrs {
			if a := prefix.Addr(); a.Is6() {
				cfg.Ports, ports = append(cfg.Ports, []netip.Addr{a}), append(ports, i)
			} else {
				cfg.Ports[first] = append(cfg.Ports[first], a)
			}
		}
	}
	f, err = shmlink.Create(cfg)
	return f, ports, err
}

// createCapture creates the capture file, unless none is wanted.
func (c *cableSet) createCapture(opts CaptureOptions) (err error) {
	if opts.File == "" {
		return nil
	}
	if c.file, err = os.Create(opts.File); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	c.capture = pcaplink.NewCapture(c.file, pcaplink.Options{
		Framing: pcaplink.Ethernet, Epoch: time.Now(), Comment: opts.Comment,
		MaxBytes: cmp.Or(opts.MaxBytes, MaxFabricCapture), OnLimit: opts.OnTruncated,
	})
	return nil
}

// begin implements network, in every switch. Without switches, nothing is impaired.
func (c *cableSet) begin(start time.Time) error {
	errs := make([]error, 0, len(c.switches))
	for _, s := range c.switches {
		errs = append(errs, s.begin(start))
	}
	return errors.Join(errs...)
}

// errDirect is returned for impairments of hosts that are connected directly.
var errDirect = errors.New("the hosts are connected directly by a cable in shared memory, which cannot be impaired or cut")

// setSpecs implements network: it replaces impairments of ports in the switches of their rails. It
// fails if the hosts are connected directly, without switches.
func (c *cableSet) setSpecs(all []lab.SpecChange) error {
	if len(c.switches) == 0 {
		return errDirect
	}
	var errs []error
	for _, change := range all {
		errs = append(errs, c.switches[c.plan.Ports[change.Port].Rail].setSpecs(change))
	}
	return errors.Join(errs...)
}

// setLink implements network. NICs do not see the state of the link.
func (c *cableSet) setLink(port int, up bool) error {
	if len(c.switches) == 0 {
		return errDirect
	}
	c.switches[c.plan.Ports[port].Rail].setLink(c.plan.Ports[port].Cable, up)
	return nil
}

// setLinks implements network: it sets the links of all ports that match the pattern up or down.
func (c *cableSet) setLinks(pattern string, up bool) error {
	ends, err := c.plan.Topology.Match(pattern)
	if err != nil {
		return err
	}
	for i := range c.plan.Ports {
		if slices.ContainsFunc(ends, func(e topology.Port) bool { return c.plan.Ports[i].Same(e) }) {
			err = errors.Join(err, c.setLink(i, up))
		}
	}
	return err
}

// partition implements network: the switches drop packets between groups of addresses.
func (c *cableSet) partition(step *lab.Step) {
	groups := groupsOf(c.plan, step)
	for _, s := range c.switches {
		s.mu.Lock()
		s.partitioned = groups
		s.mu.Unlock()
	}
}

// readCounters implements network. Links of hosts that are connected directly have no counters.
func (c *cableSet) readCounters(o *lab.Observation) error {
	links := lab.NewLinks(c.plan)
	for _, s := range c.switches {
		s.readCounters(o, links)
	}
	o.Links = links.All
	return nil
}

// close implements network: it stops the switches, and closes their links, the cables' files and
// the capture. Later calls return the error of the first.
func (c *cableSet) close() error {
	c.closed.Do(func() {
		c.stop()
		for _, s := range c.switches {
			s.link.Wake()
		}
		c.run.Wait()
		for _, s := range c.switches {
			c.err = errors.Join(c.err, s.link.Close())
		}
		for _, f := range c.files {
			f.Close()
		}
		c.err = errors.Join(c.err, closeCapture(c.file, c.capture))
	})
	return c.err
}

// cabled reports whether the hosts of a scenario are connected by cables in shared memory.
func cabled(s *scenarios.Scenario) bool { return s.Fabric.Cable == scenarios.SharedMemory }
