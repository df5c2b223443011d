package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Alone is a lab of a device of this very host, driven by this process, with itself as
// the partner: what it sends comes back to it. Nobody is at the other end of its cable,
// so it is for cases that look at no packet, those of the verbs API. What they find is
// the device's and its provider's, with no agent between. Cases run one at a time.
type Alone struct {
	host    agent.Host
	id      agent.DeviceIdentity
	caps    verbs.Caps
	met     map[int]ends // without peers
	mtu     int
	maxTime time.Duration
	turn    chan struct{}
	gone    error // nothing more can be asked of it
}

var _ conformance.Lab = (*Alone)(nil)

// OnHost returns a lab of a device that the host of this process has. A case that takes
// longer than maxTime comes to no end; 2 min if that is 0.
func OnHost(h agent.Host, device string, maxTime time.Duration) (*Alone, error) {
	a := &Alone{host: h, maxTime: cmp.Or(maxTime, defaultMaxRealTime), turn: make(chan struct{}, 1), met: make(map[int]ends)}
	if err := a.find(device); err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	return a, nil
}

// find finds out what the device is and which addresses it has.
func (a *Alone) find(device string) (err error) {
	all, err := a.host.Identity()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all.Devices, func(d agent.DeviceIdentity) bool { return d.Info.Name == device })
	if i < 0 {
		return errors.New("this host has none of that name")
	}
	a.id = all.Devices[i]
	a.mtu = a.id.MTU
	dev, err := a.host.Open(device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	attr, err := dev.QueryDevice()
	if err != nil {
		return err
	}
	a.caps = attr.Caps
	var has []netip.Addr
	if a.id.Info.Transport == verbs.TransportIWARP {
		for _, p := range a.id.Addrs {
			has = append(has, p.Addr())
		}
	} else {
		table, err := gidTable(dev)
		if err != nil {
			return err
		}
		has = routed(table)
	}
	for _, addr := range has {
		if !addr.IsLinkLocalUnicast() { // a connection manager would need its scope
			e := a.met[familyOf(addr)]
			e.local = append(e.local, addr)
			a.met[familyOf(addr)] = e
		}
	}
	if len(a.met) == 0 {
		return fmt.Errorf("it has no address that is good for more than its link, only %v: give its interface one (ip address add)", has)
	}
	return nil
}

// Try implements conformance.Lab.
func (a *Alone) Try(ctx context.Context, job conformance.Job, body func(*conformance.Bench) error) error {
	if len(job.Quirks) > 0 {
		return fmt.Errorf("defects %v: a device of this host has those that it has", job.Quirks)
	}
	if job.Record == nil {
		job.Record = new(conformance.Record)
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if a.gone != nil {
		return a.gone
	}
	e, err := meeting(job.Setup, a.met, a.mtu)
	if err != nil {
		return err
	}
	return (&lonePlay{lab: a, ends: e, world: newRealWorld()}).play(ctx, &job, body)
}

// lonePlay is a case on such a device.
type lonePlay struct {
	lab    *Alone
	ends   ends
	world  *realWorld
	opened []verbs.Context // the device, and its partners, which are itself
	down   bool            // the cable is out
	taken  []netip.Prefix  // from the device
}

func (p *lonePlay) open() (verbs.Context, error) {
	dev, err := p.lab.host.Open(p.lab.id.Info.Name)
	if err == nil {
		p.opened = append(p.opened, dev)
	}
	return dev, err
}

// partner opens the device once more.
func (p *lonePlay) partner() (verbs.Context, error) {
	dev, err := p.open()
	if err == nil && p.lab.id.Info.Transport == verbs.TransportIWARP {
		dev = &named{dev, p.ends.local[0]}
	}
	return dev, err
}

// named is an iWARP device whose first GID is its address, by which cases know where
// their partner is. A GID means nothing to iWARP: kernels make it of the Ethernet
// address.
type named struct {
	verbs.Context
	addr netip.Addr
}

// QueryGID implements verbs.Context.
func (n *named) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	e, err := n.Context.QueryGID(port, index)
	if err == nil && index == 0 {
		e.GID = verbs.GIDFrom(n.addr)
	}
	return e, err
}

func (p *lonePlay) play(ctx context.Context, job *conformance.Job, body func(*conformance.Bench) error) error {
	dev, err := p.open()
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	b := &conformance.Bench{
		World: p.world, Device: dev, Caps: p.lab.caps, Local: p.ends.local, MTU: p.lab.mtu, Rand: caseRand(job.Seed), Record: job.Record,
		Partner: p.partner, SetLink: p.setLink, SetAddress: p.setAddress,
		SetHandler: func(path conformance.Path) error {
			if path == (conformance.Path{}) {
				return nil
			}
			return fmt.Errorf("%w: a device that talks to itself loses nothing", conformance.ErrCannot)
		},
	}
	b.Reopen = func() error {
		if err := b.Device.Close(); err != nil {
			return err
		}
		b.Device, err = p.open()
		return err
	}
	timer := time.NewTimer(p.lab.maxTime)
	defer timer.Stop()
	var outcome error
	done := start(func() error { return body(b) })
	select {
	case outcome = <-done:
		if outcome == nil {
			outcome = p.world.leftTasks()
		}
	case outcome = <-p.world.crash:
	case <-ctx.Done():
		outcome = context.Cause(ctx)
	case <-timer.C:
		outcome = &conformance.HangError{Waiting: fmt.Sprintf("%v have passed, and %s", p.lab.maxTime, p.world.waitsFor())}
	}
	close(p.world.end)
	return errors.Join(outcome, p.cleanUp())
}

// closePatience is how long a device may take to be closed. A kernel may have to wait for
// a connection that nobody has answered: siw gives such a one 20 seconds.
const closePatience = 30 * time.Second

// cleanUp closes what the case leaves open, and gives back what was taken. A device that
// cannot be closed is wedged, and nothing more can be said of it.
func (p *lonePlay) cleanUp() error {
	closed := start(p.restore)
	select {
	case err := <-closed:
		return err
	case <-time.After(closePatience):
		p.lab.gone = fmt.Errorf("%s was not closed within %v, and is wedged: its host has to be restarted", p.lab.id.Info.Name, closePatience)
		return p.lab.gone
	}
}

func (p *lonePlay) restore() error {
	var errs []error
	for _, dev := range p.opened {
		if err := dev.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, fmt.Errorf("close the device: %w", err))
		}
	}
	if p.down {
		errs = append(errs, p.setLink(true))
	}
	for _, n := range slices.Clone(p.taken) {
		errs = append(errs, p.setAddress(n.Addr(), true))
	}
	return errors.Join(errs...)
}

// setLink takes the device's cable out, as far as the host can.
func (p *lonePlay) setLink(up bool) error {
	err := able(p.lab.host.SetLink(p.lab.id.Info.Name, up))
	if err == nil {
		p.down = !up
	}
	return err
}

// setAddress takes an address from the device's interface, or gives it back.
func (p *lonePlay) setAddress(addr netip.Addr, present bool) error {
	i := slices.IndexFunc(p.lab.id.Addrs, func(n netip.Prefix) bool { return n.Addr() == addr })
	if i < 0 {
		return fmt.Errorf("%w: %v is no address of the device's interface", conformance.ErrCannot, addr)
	}
	n := p.lab.id.Addrs[i]
	if err := able(p.lab.host.SetAddress(p.lab.id.Info.Name, n, present)); err != nil {
		return err
	}
	p.taken = slices.DeleteFunc(p.taken, func(t netip.Prefix) bool { return t == n })
	if !present {
		p.taken = append(p.taken, n)
	}
	return nil
}
