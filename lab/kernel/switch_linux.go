package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/impair/ethernet"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// heldBridge is a bridge that is always down. What is plugged in there is the
// switch's alone: a packet socket sees what arrives, and the kernel, which has an
// address on this network and would answer, loses it right behind that.
const heldBridge = "held"

// The two ends of the cable between the switch and the bridge.
func splicePort(id int) string { return fmt.Sprintf("splice%d", id) }
func spliceWire(id int) string { return fmt.Sprintf("splice%d-wire", id) }

// patch is where guests' links end: at the bridge, or in the user-space switch, from
// where a cable leads on to the bridge. A link is put through the switch when it is
// first impaired, and stays there: until then nothing stands between a guest and
// the bridge. (With emulated processors it makes no difference that could be measured:
// 0.12 ms there and back and 0.35 Gb/s to a guest both ways, for it is the guest that is
// slow. With those of the machine it would.)
type patch struct {
	ns   place
	seed uint64

	mu    sync.Mutex
	links []*spliced // of each guest; nil at the bridge
	down  []bool
	gone  bool
}

func newPatch(ns place, guests int, seed uint64) *patch {
	return &patch{ns: ns, seed: seed, links: make([]*spliced, guests), down: make([]bool, guests)}
}

// spliced is a link that passes through user space.
type spliced struct {
	at      *uswitch.Switch
	out, in *ethernet.Impairer
	set     Impairment
	cancel  context.CancelFunc
	ended   chan struct{}
	failed  error // why it ended, when it has
}

// Ports of a switch.
const (
	guestEnd = iota
	wireEnd
)

// impair replaces what packets meet on a guest's link.
func (p *patch) impair(id int, m Impairment) error {
	if err := m.check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.has(id); err != nil {
		return err
	}
	s := p.links[id-1]
	if s == nil {
		if m.None() {
			return nil
		}
		var err error
		if s, err = p.splice(id); err != nil {
			return fmt.Errorf("put the link of guest %d through the switch: %w", id, err)
		}
		p.links[id-1] = s
	}
	return s.impair(m)
}

func (p *patch) has(id int) error {
	switch {
	case p.gone:
		return errors.New("the lab is down")
	case id < 1 || id > len(p.links):
		return fmt.Errorf("no guest %d: there are 1 to %d", id, len(p.links))
	}
	return nil
}

// splice puts a link through the switch. What is on its way at that moment is lost.
func (p *patch) splice(id int) (*spliced, error) {
	if err := p.ns.Do(func() error { return laySplice(id) }); err != nil {
		return nil, errors.Join(err, p.ns.Do(func() error { return unsplice(id) }))
	}
	s, err := p.open(id)
	if err != nil {
		return nil, errors.Join(err, p.ns.Do(func() error { return unsplice(id) }))
	}
	return s, nil
}

// open opens the switch of a link whose ends are ready.
func (p *patch) open(id int) (s *spliced, err error) {
	s = &spliced{ended: make(chan struct{})}
	name := fmt.Sprintf("guest%d", id)
	epoch := time.Now()
	for _, way := range []struct {
		path **ethernet.Impairer
		way  ethernet.Direction
	}{{&s.out, ethernet.Up}, {&s.in, ethernet.Down}} {
		*way.path, err = ethernet.NewImpairer(impair.Config{}, ethernet.Options{Source: ethernet.Sources(p.seed, WireDevice, name, way.way)})
		if err != nil {
			return nil, err
		}
	}
	s.at, err = uswitch.New(uswitch.Config{
		Name: "the switch of " + name, Open: p.ns.Do, Epoch: epoch,
		Ports: []uswitch.PortConfig{
			guestEnd: {Interface: wirePort(id), Name: name}, wireEnd: {Interface: splicePort(id), Name: WireDevice},
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		if err := s.at.Run(ctx); err != nil && ctx.Err() == nil {
			s.failed = err
		}
	}()
	return s, nil
}

// impair replaces what packets meet. A way on which nothing happens has no path: its
// super-packets pass whole.
func (s *spliced) impair(m Impairment) error {
	for _, way := range []struct {
		path  *ethernet.Impairer
		dir   uswitch.Direction
		specs []impair.Spec
	}{{s.out, uswitch.In, m.Out}, {s.in, uswitch.Out, m.In}} {
		var err error
		s.at.WhileQuiesced(func() { err = way.path.Pipe().SetSpecs(way.specs) })
		if err != nil {
			return err
		}
		var path uswitch.FrameHandler
		if len(way.specs) > 0 {
			path = way.path
		}
		if err := s.at.SetHandler(guestEnd, way.dir, path); err != nil {
			return err
		}
	}
	s.set = m
	return nil
}

// counters are what the link has done.
func (s *spliced) counters(l *Link) {
	l.Switched, l.Impairment = true, s.set
	select {
	case <-s.ended:
		l.Broken = fmt.Sprintf("the switch has ended: %v", s.failed)
	default:
	}
	var out, in impair.Counters
	s.at.WhileQuiesced(func() { out, in = s.out.Pipe().Counters(), s.in.Pipe().Counters() })
	ports := s.at.Stats().Ports
	l.Sent = countersOf(out, ports[guestEnd].In.Drops.Total()+ports[wireEnd].Out.Drops.Total())
	l.Received = countersOf(in, ports[wireEnd].In.Drops.Total()+ports[guestEnd].Out.Drops.Total())
}

// setLink takes the cable of a guest out, or puts it back. The guest is not told: it
// has to find out by what does not arrive.
func (p *patch) setLink(id int, up bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.has(id); err != nil {
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

// link is how a guest's link is.
func (p *patch) link(id int) (l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has(id) != nil {
		return l
	}
	l.Down = p.down[id-1]
	if s := p.links[id-1]; s != nil {
		s.counters(&l)
	}
	return l
}

// close ends the switches.
func (p *patch) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	p.gone = true
	var errs []error
	for _, s := range p.links {
		if s == nil {
			continue
		}
		s.cancel()
		<-s.ended
		errs = append(errs, s.failed, s.at.Close())
	}
	return errors.Join(errs...)
}

// laySplice takes a guest's cable out of the bridge and plugs another in its place,
// whose other end is beside it for the switch, in the namespace of the calling thread.
func laySplice(id int) error {
	held, err := netlink.LinkByName(heldBridge)
	if err != nil {
		held = &netlink.Bridge{LinkAttrs: attributes(heldBridge, 0)}
		if err := netlink.LinkAdd(held); err != nil {
			return fmt.Errorf("interface %s: %w", heldBridge, err)
		}
	}
	tap, err := netlink.LinkByName(wirePort(id))
	if err != nil {
		return fmt.Errorf("interface %s: %w", wirePort(id), err)
	}
	mtu := tap.Attrs().MTU
	cable := &netlink.Veth{LinkAttrs: attributes(spliceWire(id), mtu), PeerName: splicePort(id)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("interface %s: %w", spliceWire(id), err)
	}
	end, err := netlink.LinkByName(splicePort(id))
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetMTU(end, mtu) },
		func() error { return plug(end, heldBridge) },
		func() error {
			if uswitch.SupportsUDPGSO() {
				return nil
			}
			return uswitch.DisableGSO(spliceWire(id))
		},
		func() error { return netlink.LinkSetMaster(tap, held) },
		func() error { return plug(cable, WireDevice) },
		func() error { return awaitUp(spliceWire(id)) },
		func() error { return awaitUp(splicePort(id)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("interface %s: %w", splicePort(id), err)
		}
	}
	return nil
}

// awaitUp returns when the kernel takes packets at an end of a cable: it finds out in its own
// time that the other end is up too, and loses what comes before.
func awaitUp(name string) error {
	const patience = 30 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l, err := netlink.LinkByName(name)
		switch {
		case err != nil:
			return err
		case l.Attrs().OperState == netlink.OperUp:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s is %v after %v", name, l.Attrs().OperState, patience)
		}
	}
}

// unsplice undoes as much of it as was done.
func unsplice(id int) error {
	var errs []error
	if cable, err := netlink.LinkByName(spliceWire(id)); err == nil {
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
