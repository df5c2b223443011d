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

// LocalDevice is a lab with a device of this host, which is also its own partner.
// It has no peer on the link, and is for cases of the verbs API, without an agent.
// Cases run one at a time.
type LocalDevice struct {
	host    agent.Host
	id      agent.DeviceIdentity
	caps    verbs.Caps
	addrs   map[int]addrPair // without peers
	mtu     int
	maxTime time.Duration
	sem     chan struct{}
	err     error // set when the device is wedged
}

var _ conformance.Lab = (*LocalDevice)(nil)

// OnLocalDevice returns a lab with a device of this host. A case that takes longer
// than maxTime hangs; 0 means 2 min.
func OnLocalDevice(h agent.Host, device string, maxTime time.Duration) (*LocalDevice, error) {
	a := &LocalDevice{host: h, maxTime: cmp.Or(maxTime, defaultMaxRealTime), sem: make(chan struct{}, 1), addrs: make(map[int]addrPair)}
	if err := a.identify(device); err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	return a, nil
}

// identify queries the device and its addresses.
func (a *LocalDevice) identify(device string) (err error) {
	all, err := a.host.Identity()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all.Devices, func(d agent.DeviceIdentity) bool { return d.Info.Name == device })
	if i < 0 {
		return errors.New("this host has no such device")
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
		has = roceV2Addrs(table)
	}
	for _, addr := range has {
		if !addr.IsLinkLocalUnicast() { // unusable for a connection manager
			e := a.addrs[familyOf(addr)]
			e.local = append(e.local, addr)
			a.addrs[familyOf(addr)] = e
		}
	}
	if len(a.addrs) == 0 {
		return fmt.Errorf("it has only link-local addresses, %v: add another to its interface (ip address add)", has)
	}
	return nil
}

// WithBench implements conformance.Lab.
func (a *LocalDevice) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	if len(job.Defects) > 0 {
		return fmt.Errorf("defects %v: a device of this host cannot be given defects", job.Defects)
	}
	if job.Record == nil {
		job.Record = new(conformance.Record)
	}
	select {
	case a.sem <- struct{}{}:
		defer func() { <-a.sem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if a.err != nil {
		return a.err
	}
	e, err := selectAddrs(job.Setup, a.addrs, a.mtu)
	if err != nil {
		return err
	}
	state := interfaceState{host: a.host, device: a.id.Info.Name, addrs: a.id.Addrs}
	return (&localCase{lab: a, addrs: e, world: newRealWorld(), interfaceState: state}).runCase(ctx, &job, body)
}

// localCase is a case on a LocalDevice.
type localCase struct {
	lab    *LocalDevice
	addrs  addrPair
	world  *realWorld
	opened []verbs.Context // the device and its partners, which are the same device
	interfaceState
}

func (p *localCase) open() (verbs.Context, error) {
	dev, err := p.lab.host.Open(p.lab.id.Info.Name)
	if err == nil {
		p.opened = append(p.opened, dev)
	}
	return dev, err
}

// openPartner opens the device again.
func (p *localCase) openPartner() (verbs.Context, error) {
	dev, err := p.open()
	if err == nil && p.lab.id.Info.Transport == verbs.TransportIWARP {
		dev = &gidDevice{dev, p.addrs.local[0]}
	}
	return dev, err
}

// gidDevice is an iWARP device whose first GID is its address, by which cases find
// their partner. Kernels derive the GID of iWARP from the Ethernet address.
type gidDevice struct {
	verbs.Context
	addr netip.Addr
}

// QueryGID implements verbs.Context.
func (n *gidDevice) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	e, err := n.Context.QueryGID(port, index)
	if err == nil && index == 0 {
		e.GID = verbs.GIDFrom(n.addr)
	}
	return e, err
}

func (p *localCase) runCase(ctx context.Context, job *conformance.BenchSpec, body func(*conformance.Bench) error) error {
	dev, err := p.open()
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	b := &conformance.Bench{
		Runtime: p.world, Device: dev, Caps: p.lab.caps, Local: p.addrs.local, MTU: p.lab.mtu, Rand: newCaseRand(job.Seed), Record: job.Record,
		Partner: p.openPartner, SetLink: p.setLink, SetAddress: p.setAddress,
		SetPath: func(path conformance.Path) error {
			if path == (conformance.Path{}) {
				return nil
			}
			return fmt.Errorf("%w: a device that talks to itself loses nothing", conformance.ErrBenchCannot)
		},
	}
	b.Reopen = func() error {
		if err := b.Device.Close(); err != nil {
			return err
		}
		b.Device, err = p.open()
		return err
	}
	outcome := p.world.runBody(ctx, func() error { return body(b) }, hangCheck{interval: p.lab.maxTime}, nil)
	close(p.world.stop)
	return errors.Join(outcome, p.cleanUp())
}

// localCloseTimeout is how long a device may take to close: siw keeps an unanswered
// connection for 20 seconds.
const localCloseTimeout = 30 * time.Second

// cleanUp closes the device and undoes changes. A device that does not close is
// wedged.
func (p *localCase) cleanUp() error {
	closed := goCase(func() error { return errors.Join(closeDevices(p.opened), p.restore()) })
	select {
	case err := <-closed:
		return err
	case <-time.After(localCloseTimeout):
		p.lab.err = fmt.Errorf("%s was not closed within %v, and is wedged: its host has to be restarted", p.lab.id.Info.Name, localCloseTimeout)
		return p.lab.err
	}
}
