package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
	own  []netip.Prefix  // the addresses of the judge's kernel
	wire *etherwire.Wire // nil for streams
	turn chan struct{}
	// patience is how long the device may take to be opened or restarted.
	patience time.Duration

	mu     sync.Mutex
	client *agent.Client
	gone   error // the agent is, for good
}

var _ conformance.Lab = (*Device)(nil)

// OnDevice returns a lab of a device that an agent has. RoCE takes CAP_NET_RAW. The lab
// owns the agent's client from then on, also if it fails.
func OnDevice(client *agent.Client, device string, opt DeviceOptions) (*Device, error) {
	opt.MaxTime = cmp.Or(opt.MaxTime, defaultMaxRealTime)
	if opt.Note == nil {
		opt.Note = func(string) {}
	}
	d := &Device{name: device, opt: opt, client: client, turn: make(chan struct{}, 1), patience: restartPatience}
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
	intf, err := net.InterfaceByName(d.opt.Interface)
	if err != nil {
		return fmt.Errorf("the judge's interface %s: %w", d.opt.Interface, err)
	}
	if d.own, err = prefixesOf(intf); err != nil {
		return err
	}
	if d.mtu = intf.MTU; d.id.MTU > 0 {
		d.mtu = min(d.mtu, d.id.MTU)
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
	if d.Streams() {
		d.met, err = streamEnds(d.id.Addrs, d.own, d.opt.Peers)
		return err
	}
	table, err := gidTable(dev)
	if err != nil {
		return err
	}
	if d.met, err = datagramEnds(table, d.opt.Peers); err != nil {
		return err
	}
	return d.openWire()
}

// Streams says that the device talks over TCP.
func (d *Device) Streams() bool { return d.id.Info.Transport == verbs.TransportIWARP }

func (d *Device) openWire() error {
	var addrs []netip.Addr
	for _, family := range []int{6, 4} {
		for _, a := range d.met[family].peers {
			for _, p := range d.own {
				if p.Addr() == a {
					return fmt.Errorf("the kernel here has the address %v and would answer in the judge's place: name another, or take it from %s", a, d.opt.Interface)
				}
			}
			addrs = append(addrs, a)
		}
	}
	mac, err := net.ParseMAC(d.id.MAC)
	if err != nil {
		return fmt.Errorf("the Ethernet address of the device's interface %q, as the agent tells it: %w", d.id.NetDevice, err)
	}
	d.wire, err = etherwire.Open(etherwire.Config{Interface: d.opt.Interface, Device: mac, Addrs: addrs})
	return err
}

// prefixesOf are the addresses of an interface here, with their networks.
func prefixesOf(intf *net.Interface) (all []netip.Prefix, err error) {
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
	return all, err
}

// Identity is what the agent said of the device.
func (d *Device) Identity() agent.DeviceIdentity { return d.id }

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
	e, err := meeting(job.Setup, d.met, d.mtu)
	if err != nil {
		return err
	}
	r := &remotePlay{lab: d, client: d.agent(), ends: e, world: newRealWorld()}
	outcome := r.play(ctx, &job, body)
	why, outcome := r.cleanUp(outcome)
	if why == "" && d.opt.RestartAfter != nil && d.opt.RestartAfter(job.Case) {
		why = "as after each case of its kind"
	}
	if why != "" {
		d.renew(ctx, job.Case, why)
	}
	return outcome
}

// How long the agent's host may take to be reached again, the device to be opened or
// restarted, and its addresses to come back.
const (
	hostPatience    = time.Minute
	restartPatience = 30 * time.Second
	devicePatience  = 10 * time.Second
)

// renew has the device be as new after something happened to it, and tells of it.
func (d *Device) renew(ctx context.Context, id, why string) {
	client := d.agent()
	if client.Err() != nil {
		fresh, err := d.redial(ctx)
		if err != nil {
			d.lose(fmt.Errorf("the agent was lost in %s, and is not reached again: %w", id, err))
			return
		}
		d.mu.Lock()
		d.client, client = fresh, fresh
		d.mu.Unlock()
		d.opt.Note(fmt.Sprintf("The agent was lost in %s, and is reached again", id))
	}
	var err error
	select {
	case err = <-start(func() error { return client.Restart(d.name) }):
	case <-time.After(d.patience):
		// Most likely the driver has crashed, and the kernel waits for it.
		d.lose(fmt.Errorf("%s wedged in %s (%s): it does not restart within %v, and its host has to be restarted", d.name, id, why, d.patience))
		return
	}
	if err == nil {
		err = d.awaitAddrs(client)
	}
	if err != nil {
		d.opt.Note(fmt.Sprintf("%s should be restarted after %s (%s): %v", d.name, id, why, err))
		return
	}
	d.opt.Note(fmt.Sprintf("%s was restarted after %s (%s)", d.name, id, why))
}

// lose notes that there is no device any more.
func (d *Device) lose(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = why
}

// redial reaches the agent again.
func (d *Device) redial(ctx context.Context) (*agent.Client, error) {
	if d.opt.Redial == nil {
		return nil, errors.New("nobody says how")
	}
	ctx, stop := context.WithTimeout(ctx, hostPatience)
	defer stop()
	for {
		c, err := d.opt.Redial(ctx)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// awaitAddrs returns when a device that was restarted has the addresses that it had.
func (d *Device) awaitAddrs(client *agent.Client) error {
	if d.Streams() {
		return nil // its interface was not restarted
	}
	for deadline := time.Now().Add(devicePatience); ; time.Sleep(50 * time.Millisecond) {
		met, err := d.meet(client)
		if err == nil && len(met) == len(d.met) {
			d.met = met
			return nil
		}
		if time.Now().After(deadline) {
			return cmp.Or(err, fmt.Errorf("it has lost addresses: it had %v, and has %v", d.met, met))
		}
	}
}

func (d *Device) meet(client *agent.Client) (met map[int]ends, err error) {
	dev, err := client.Open(d.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	table, err := gidTable(dev)
	if err != nil {
		return nil, err
	}
	return datagramEnds(table, d.opt.Peers)
}
