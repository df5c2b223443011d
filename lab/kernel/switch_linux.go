package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab/ethernet"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// isolatedBridge is a bridge that is always down. Packet sockets see the packets on
// its ports, and the kernel drops them, instead of answering for its own address.
const isolatedBridge = "held"

// The veth pair between the switch and the bridge.
func switchSidePort(id int) string { return fmt.Sprintf("splice%d", id) }
func bridgeSidePort(id int) string { return fmt.Sprintf("splice%d-wire", id) }

// linkSet has the links of all guests. A link is connected to the bridge directly,
// until its first impairment moves it to a user-space switch.
type linkSet struct {
	ns   netNamespace
	seed uint64

	mu     sync.Mutex
	links  []*switchedLink // by guest; nil if connected directly
	down   []bool
	closed bool
}

// switchedLink is a link through a user-space switch.
type switchedLink struct {
	sw         *uswitch.Switch
	out, in    *ethernet.Impairer
	impairment Impairment
	cancel     context.CancelFunc
	ended      chan struct{}
	err        error // valid when ended is closed
}

// Ports of a switch.
const (
	guestPort = iota
	bridgePort
)

// impair replaces the impairments of a guest's link. A link is connected to the bridge directly
// until its first impairment, which moves it to a switch in user space.
func (p *linkSet) impair(id int, m Impairment) error {
	if err := m.check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := checkGuest(id, len(p.links), p.closed); err != nil {
		return err
	}
	s := p.links[id-1]
	if s == nil {
		if m.Empty() {
			return nil
		}
		var err error
		if s, err = p.moveToSwitch(id); err != nil {
			return fmt.Errorf("put the link of guest %d through the switch: %w", id, err)
		}
		p.links[id-1] = s
	}
	return s.impair(m)
}

// moveToSwitch moves a link from the bridge to a user-space switch. Packets in flight are lost.
func (p *linkSet) moveToSwitch(id int) (*switchedLink, error) {
	var s *switchedLink
	err := p.ns.Do(func() error { return insertSwitchLink(id) })
	if err == nil {
		s, err = p.startSwitch(id)
	}
	if err != nil {
		return nil, errors.Join(err, p.ns.Do(func() error { return removeSwitchLink(id) }))
	}
	return s, nil
}

// startSwitch starts the user-space switch of guest id's link, between the veth pairs that
// insertSwitchLink made, without impairments.
func (p *linkSet) startSwitch(id int) (s *switchedLink, err error) {
	s = &switchedLink{ended: make(chan struct{})}
	name := fmt.Sprintf("guest%d", id)
	epoch := time.Now()
	for _, dir := range []struct {
		impairer **ethernet.Impairer
		name     string // of the direction in a simulation, for the same random numbers
	}{{&s.out, "up"}, {&s.in, "down"}} {
		*dir.impairer, err = ethernet.NewImpairer(impair.Config{}, ethernet.Options{Source: impair.RandSources(p.seed, WireDevice+"/"+name+"/"+dir.name)})
		if err != nil {
			return nil, err
		}
	}
	s.sw, err = uswitch.New(uswitch.Config{
		Name: "the switch of " + name, InNamespace: p.ns.Do, Epoch: epoch,
		Ports: []uswitch.PortConfig{
			guestPort: {Interface: wirePort(id), Name: name}, bridgePort: {Interface: switchSidePort(id), Name: WireDevice},
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		if err := s.sw.Run(ctx); err != nil && ctx.Err() == nil {
			s.err = err
		}
	}()
	return s, nil
}

// impair replaces the impairments of the link. A direction without impairments has no frame
// handler, so that the switch forwards GSO packets without segmenting them.
func (s *switchedLink) impair(m Impairment) error {
	for _, dir := range []struct {
		impairer *ethernet.Impairer
		dir      uswitch.Direction
		specs    []impair.Spec
	}{{s.out, uswitch.In, m.Out}, {s.in, uswitch.Out, m.In}} { // the guest's output is the switch's input
		var err error
		s.sw.WhileQuiesced(func() { err = dir.impairer.Pipe.SetSpecs(dir.specs) })
		if err != nil {
			return err
		}
		var handler uswitch.FrameHandler
		if len(dir.specs) > 0 {
			handler = dir.impairer
		}
		if err := s.sw.SetHandler(guestPort, dir.dir, handler); err != nil {
			return err
		}
	}
	s.impairment = m
	return nil
}

// describe sets the impairments, counters and error in l. The drops of a direction are those at the
// port of the switch where packets enter and at the port where they leave.
func (s *switchedLink) describe(l *Link) {
	l.Switched, l.Impairment = true, s.impairment
	select {
	case <-s.ended:
		l.Broken = fmt.Sprintf("the switch has ended: %v", s.err)
	default:
	}
	var out, in impair.Counters
	s.sw.WhileQuiesced(func() { out, in = s.out.Pipe.Counters(), s.in.Pipe.Counters() })
	ports := s.sw.Stats().Ports
	l.Sent = countersOf(out, ports[guestPort].In.Drops.Total()+ports[bridgePort].Out.Drops.Total())
	l.Received = countersOf(in, ports[bridgePort].In.Drops.Total()+ports[guestPort].Out.Drops.Total())
}

// setLink sets the link of a guest up or down. The guest sees no loss of carrier.
func (p *linkSet) setLink(id int, up bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := checkGuest(id, len(p.links), p.closed); err != nil {
		return err
	}
	err := p.ns.Do(func() error {
		l, err := netlink.LinkByName(wirePort(id))
		switch {
		case err != nil:
			return err
		case up:
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
	if err != nil {
		return fmt.Errorf("interface %s: %w", wirePort(id), err)
	}
	p.down[id-1] = !up
	return nil
}

// link returns the state of a guest's link; the zero Link after close or for an unknown guest.
func (p *linkSet) link(id int) (l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if checkGuest(id, len(p.links), p.closed) != nil {
		return l
	}
	l.Down = p.down[id-1]
	if s := p.links[id-1]; s != nil {
		s.describe(&l)
	}
	return l
}

// close stops the switches, each of which is a link of a guest, and returns their errors.
func (p *linkSet) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var errs []error
	for _, s := range p.links {
		if s == nil {
			continue
		}
		s.cancel()
		<-s.ended
		errs = append(errs, s.err, s.sw.Close())
	}
	return errors.Join(errs...)
}

// insertSwitchLink moves a guest's tap to the isolated bridge, which is always down: only the
// packet sockets of the switch see the packets there. It adds a veth pair between the switch and
// the wire's bridge. All interfaces are in the namespace of the calling thread.
func insertSwitchLink(id int) error {
	isolated, err := netlink.LinkByName(isolatedBridge)
	if err != nil {
		isolated = &netlink.Bridge{LinkAttrs: linkAttrs(isolatedBridge, defaultMTU)}
		if err := netlink.LinkAdd(isolated); err != nil {
			return fmt.Errorf("interface %s: %w", isolatedBridge, err)
		}
	}
	tap, err := netlink.LinkByName(wirePort(id))
	if err != nil {
		return fmt.Errorf("interface %s: %w", wirePort(id), err)
	}
	mtu := tap.Attrs().MTU
	cable := &netlink.Veth{LinkAttrs: linkAttrs(bridgeSidePort(id), mtu), PeerName: switchSidePort(id)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("interface %s: %w", bridgeSidePort(id), err)
	}
	end, err := netlink.LinkByName(switchSidePort(id))
	if err != nil {
		return err
	}
	return configure(switchSidePort(id),
		func() error { return netlink.LinkSetMTU(end, mtu) },
		func() error { return addToBridge(end, isolatedBridge) },
		func() error {
			if uswitch.SupportsUDPGSO() { // else the switch's packet sockets cannot receive GSO packets
				return nil
			}
			return uswitch.DisableGSO(bridgeSidePort(id))
		},
		func() error { return netlink.LinkSetMaster(tap, isolated) },
		func() error { return addToBridge(cable, WireDevice) },
		func() error { return waitOperUp(bridgeSidePort(id)) },
		func() error { return waitOperUp(switchSidePort(id)) })
}

// waitOperUp waits until an interface is operationally up: until then, the kernel drops packets.
func waitOperUp(name string) error {
	const timeout = 30 * time.Second
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		l, err := netlink.LinkByName(name)
		switch {
		case err != nil:
			return err
		case l.Attrs().OperState == netlink.OperUp:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s is %v after %v", name, l.Attrs().OperState, timeout)
		}
	}
}

// removeSwitchLink returns a guest's tap to the wire's bridge and removes the veth pair of
// insertSwitchLink, which may have failed halfway.
func removeSwitchLink(id int) error {
	var errs []error
	if cable, err := netlink.LinkByName(bridgeSidePort(id)); err == nil {
		errs = append(errs, netlink.LinkDel(cable))
	}
	tap, err := netlink.LinkByName(wirePort(id))
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	bridge, err := netlink.LinkByName(WireDevice)
	if err == nil {
		err = netlink.LinkSetMaster(tap, bridge)
	}
	return errors.Join(append(errs, err)...)
}
