package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/etherwire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Device is a lab of one device, which is another host's: it is driven through an agent
// there, and the judge is at the other end of its cable. Cases run one at a time.
type Device struct {
	name string
	opt  DeviceOptions
	id   agent.DeviceIdentity
	attr verbs.DeviceAttr
	mtu  int
	met  map[int]ends
	own  []netip.Prefix // the addresses of the judge's kernel, at the judge's interface
	free []netip.Prefix // and those for partners
	way  DeviceWire
	wire openWire // nil where the kernel's TCP is
	turn chan struct{}
	// opening and restarting are how long these may take the device.
	opening, restarting time.Duration

	mu     sync.Mutex
	client *agent.Client
	gone   error // the agent is, for good
}

var _ conformance.Lab = (*Device)(nil)

// OnDevice returns a lab of a device that an agent has. Some wires take CAP_NET_RAW: see
// [DeviceWire]. The lab owns the agent's client from then on, also if it fails.
func OnDevice(client *agent.Client, device string, opt DeviceOptions) (*Device, error) {
	opt.MaxTime, opt.Partners = cmp.Or(opt.MaxTime, defaultMaxRealTime), cmp.Or(opt.Partners, opt.Interface)
	if opt.Note == nil {
		opt.Note = func(string) {}
	}
	d := &Device{name: device, opt: opt, client: client, turn: make(chan struct{}, 1), opening: restartPatience, restarting: restartPatience}
	if err := d.find(); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", device, err), d.Close())
	}
	return d, nil
}

// find finds out what the device is and where the judge meets it.
func (d *Device) find() (err error) {
	if _, d.id, err = identityOf(d.client, d.name); err != nil {
		return err
	}
	if d.mtu, d.own, err = lookAt(d.opt.Interface); err != nil {
		return fmt.Errorf("the judge's interface %s: %w", d.opt.Interface, err)
	}
	if d.id.MTU > 0 {
		d.mtu = min(d.mtu, d.id.MTU)
	}
	if _, d.free, err = lookAt(d.opt.Partners); err != nil {
		return fmt.Errorf("the partners' interface %s: %w", d.opt.Partners, err)
	}
	dev, err := d.client.Open(d.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	attr, err := dev.QueryDevice()
	if err != nil {
		return err
	}
	d.attr = attr
	if d.way, err = wireFor(d.opt.Wire, d.Streams()); err != nil {
		return err
	}
	switch d.way {
	case WireTCP:
		d.met, err = streamEnds(d.id.Addrs, d.own, d.opt.Peers)
		return err
	case WireSegments:
		if d.met, err = segmentEnds(d.id.Addrs, d.opt.Peers); err != nil {
			return err
		}
		return d.openSegments()
	case WirePackets, WireUDP:
	}
	table, err := gidTable(dev)
	if err != nil {
		return err
	}
	if d.met, err = d.meetAt(table); err != nil {
		return err
	}
	if d.way == WireUDP {
		return d.openSockets()
	}
	return d.openWire()
}

// meetAt is where a RoCE device with that GID table and the judge meet.
func (d *Device) meetAt(table []verbs.GIDEntry) (map[int]ends, error) {
	if d.way == WireUDP {
		return d.meetSockets(table)
	}
	return datagramEnds(table, d.opt.Peers)
}

// Streams says that the device talks over TCP.
func (d *Device) Streams() bool { return d.id.Info.Transport == verbs.TransportIWARP }

// ownPeers are the addresses of a judge who is a host of his own: the kernel may have none
// of them.
func (d *Device) ownPeers() (addrs []netip.Addr, err error) {
	for _, family := range []int{6, 4} {
		for _, a := range d.met[family].peers {
			if slices.ContainsFunc(slices.Concat(d.own, d.free), func(p netip.Prefix) bool { return p.Addr() == a }) {
				return nil, fmt.Errorf("the kernel here has the address %v and would answer in the judge's place: name another, or take it from its interface", a)
			}
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

func (d *Device) openWire() error {
	addrs, err := d.ownPeers()
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(d.id.MAC)
	if err != nil {
		return fmt.Errorf("the Ethernet address of the device's interface %q, as the agent tells it: %w", d.id.NetDevice, err)
	}
	w, err := etherwire.Open(etherwire.Config{Interface: d.opt.Interface, Device: mac, Addrs: addrs})
	if err != nil {
		return err
	}
	d.wire = w
	return nil
}

// lookAt returns the MTU of an interface here, and its addresses with their networks.
func lookAt(name string) (mtu int, all []netip.Prefix, err error) {
	intf, err := net.InterfaceByName(name)
	if err != nil {
		return 0, nil, err
	}
	addrs, err := intf.Addrs()
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok {
			bits, _ := n.Mask.Size()
			all = append(all, netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
	return intf.MTU, all, err
}

// Identity is what the agent said of the device.
func (d *Device) Identity() agent.DeviceIdentity { return d.id }

// Wire is how the judge is at the other end of the device's cable.
func (d *Device) Wire() DeviceWire { return d.way }

// Attr is what the device says of itself.
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }

// MTU is the largest IP packet that the cable carries.
func (d *Device) MTU() int { return d.mtu }

// Addresses are those at which the device and the judge meet.
func (d *Device) Addresses() (device, judge []netip.Addr) {
	for _, family := range []int{6, 4} {
		device, judge = append(device, d.met[family].local...), append(judge, d.met[family].peers...)
	}
	return device, judge
}

// Gone says why there is no device any more; nil while there is.
func (d *Device) Gone() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// agent is the connection to the agent, as it is now.
func (d *Device) agent() *agent.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

// Close ends the connection to the agent, which closes what is open of the device.
func (d *Device) Close() error {
	var err error
	if d.wire != nil {
		err = d.wire.Close()
	}
	return errors.Join(err, d.agent().Close())
}

// Try implements conformance.Lab.
func (d *Device) Try(ctx context.Context, job conformance.Job, body func(*conformance.Bench) error) error {
	if len(job.Quirks) > 0 {
		return fmt.Errorf("defects %v: a device of another host has those that it has", job.Quirks)
	}
	if job.Record == nil {
		job.Record = new(conformance.Record)
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := d.Gone(); err != nil {
		return err
	}
	mtu := d.mtu
	if want := job.Setup.MTU; d.way == WireSegments && want > 0 {
		mtu = min(mtu, want) // who makes his TCP himself may ask for shorter segments
	}
	e, err := meeting(job.Setup, d.met, mtu)
	if err != nil {
		return err
	}
	r := &remotePlay{lab: d, client: d.agent(), ends: e, mtu: mtu, world: newRealWorld()}
	outcome := r.play(ctx, &job, body)
	why, outcome := r.cleanUp(outcome)
	trouble := d.trouble(r.hung, outcome)
	if trouble != nil {
		outcome = troubled(outcome, trouble)
	}
	if why == "" && d.opt.RestartAfter != nil && d.opt.RestartAfter(job.Case) {
		why = "as after each case of its kind"
	}
	if why != "" || trouble != nil {
		d.renew(ctx, job.Case, why, trouble)
	}
	return outcome
}
