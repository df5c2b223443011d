package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// localDevice is a lab with a device of this host, which is also its own partner, for cases of the
// verbs API. It has no peer on the link and no agent. Cases run one at a time.
type localDevice struct {
	host    agent.Host
	id      agent.DeviceIdentity
	caps    verbs.Caps
	addrs   map[int]addrPair // without peers
	mtu     int
	maxTime time.Duration
	sem     chan struct{}
	err     error // set when the device is wedged
}

var _ conformance.Lab = (*localDevice)(nil)

// onLocalDevice returns a lab with a device of this host. maxTime limits a case; 0 means 2 min.
func onLocalDevice(h agent.Host, device string, maxTime time.Duration) (*localDevice, error) {
	a := &localDevice{host: h, maxTime: cmp.Or(maxTime, defaultMaxRealTime), sem: make(chan struct{}, 1), addrs: make(map[int]addrPair)}
	if err := a.identify(device); err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	return a, nil
}

// identify queries the device and its addresses.
func (a *localDevice) identify(device string) (err error) {
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
	has := globalAddrs(a.id.Addrs)
	if a.id.Info.Transport != verbs.TransportIWARP {
		if has, err = roceV2Addrs(dev); err != nil {
			return err
		}
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
func (a *localDevice) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	if len(job.Defects) > 0 {
		return fmt.Errorf("defects %v: a device of this host cannot be given defects", job.Defects)
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

// localCase is a case on a localDevice.
type localCase struct {
	lab    *localDevice
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

// gidDevice is an iWARP device whose first GID is its IP address, by which cases find their
// partner. Kernels derive the GID of iWARP from the MAC address.
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
	b := newBench(job, p.world, addrPair{local: p.addrs.local}, p.lab.mtu)
	b.Caps, b.Partner, b.SetLink, b.SetAddress = p.lab.caps, p.openPartner, p.setLink, p.setAddress
	b.SetPath = noImpairments(fmt.Errorf("%w: the path of a device to itself has no loss", conformance.ErrBenchCannot))
	if err := openTested(b, p.open); err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	outcome := p.world.runBody(ctx, func() error { return body(b) }, &watchdog{interval: p.lab.maxTime}, nil)
	p.world.stop()
	return errors.Join(outcome, p.cleanUp())
}

// localCloseTimeout is how long a device may take to close: siw keeps a connection without a reply
// for 20 seconds.
const localCloseTimeout = 30 * time.Second

// cleanUp closes the device and undoes changes. A device that does not close is wedged.
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

// loopbackHost returns a host with an emulated iWARP device on the loopback interface.
func loopbackHost(t *testing.T) *remoteHost {
	t.Helper()
	p := must.Get(nics.Find("softiwarp"))(t)
	opener := must.Get(p.NewOpener(nics.Setup{}))(t)
	lo := netip.MustParsePrefix("127.0.0.1/8")
	return &remoteHost{
		id: agent.DeviceIdentity{
			Info: verbs.DeviceInfo{Name: "emu0", Transport: verbs.TransportIWARP}, NetDevice: "lo", MTU: 65536, Addrs: []netip.Prefix{lo},
		},
		open: func() (verbs.Context, error) {
			return opener.OnSockets(nics.NICConfig{Name: "emu0", Addr: lo.Addr(), NoGSO: true})
		},
	}
}

func TestLocalDevicePassesVerbsAPI(t *testing.T) {
	lab := must.Get(onLocalDevice(loopbackHost(t), "emu0", 0))(t)
	suite := verbsapi.Suite()
	passed, unsupported := 0, 0
	for i := range suite.Cases {
		c := &suite.Cases[i]
		if i%7 != 0 || c.Dangerous() {
			continue
		}
		switch res := conformance.Judge(t.Context(), lab, c, conformance.Options{Seed: 1}); res.Verdict {
		case conformance.VerdictPass:
			passed++
		case conformance.VerdictUnsupported:
			unsupported++
		default:
			t.Errorf("%s: %s: %v", c.ID, res.Verdict, res.Err)
		}
	}
	if passed < 10 || unsupported == 0 {
		t.Errorf("%d passed, and %d were not supported", passed, unsupported)
	}
}

func TestLocalDeviceHangs(t *testing.T) {
	lab := must.Get(onLocalDevice(loopbackHost(t), "emu0", 50*time.Millisecond))(t)
	var hang *conformance.HangError
	err := lab.WithBench(t.Context(), conformance.BenchSpec{Case: "a"}, func(b *conformance.Bench) error {
		b.Sleep(time.Hour)
		return nil
	})
	if !errors.As(err, &hang) {
		t.Errorf("an endless case: %v", err)
	}
	err = lab.WithBench(t.Context(), conformance.BenchSpec{Case: "b"}, func(b *conformance.Bench) error {
		return errors.Join(b.SetPath(conformance.Path{}), b.SetPath(conformance.Path{LossPPM: 1}))
	})
	if !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("a path with loss: %v", err)
	}
	if err := lab.WithBench(t.Context(), conformance.BenchSpec{Case: "c"}, func(b *conformance.Bench) error { return b.SetLink(false) }); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Errorf("SetLink on a host without it: %v", err)
	}
	if _, err := onLocalDevice(loopbackHost(t), "other", 0); err == nil || !strings.Contains(err.Error(), "device other") {
		t.Errorf("an unknown device: %v", err)
	}
}
