package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Device is a lab with one device of another host: an agent there drives the
// device, and the judge is at the other end of its link. Cases run one at a time.
type Device struct {
	deviceProperties
	name                        string
	opt                         DeviceOptions
	kernelAddrs                 []netip.Prefix // of Interface
	partnerAddrs                []netip.Prefix // of PartnerInterface
	wire                        openWire       // nil with WireTCP
	sem                         chan struct{}
	openTimeout, restartTimeout time.Duration

	mu     sync.Mutex
	client *agent.Client
	err    error // set when the device is lost for good
}

var _ conformance.Lab = (*Device)(nil)

// OnDevice returns a lab with a device of an agent. Some wires need CAP_NET_RAW:
// see [DeviceWire]. The lab owns the client, also if OnDevice fails.
func OnDevice(client *agent.Client, device string, opt DeviceOptions) (*Device, error) {
	opt.MaxTime, opt.PartnerInterface = cmp.Or(opt.MaxTime, defaultMaxRealTime), cmp.Or(opt.PartnerInterface, opt.Interface)
	if opt.OnNote == nil {
		opt.OnNote = func(string) {}
	}
	d := &Device{name: device, opt: opt, client: client, sem: make(chan struct{}, 1), openTimeout: defaultRestartTimeout, restartTimeout: defaultRestartTimeout}
	if err := d.identify(); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", device, err), d.Close())
	}
	return d, nil
}

// identify queries the device, and selects the addresses and the wire.
func (d *Device) identify() (err error) {
	if _, d.id, err = identityOf(d.client, d.name); err != nil {
		return err
	}
	intf, addrs, err := interfaceAddrs(d.opt.Interface)
	if err != nil {
		return fmt.Errorf("the judge's interface %s: %w", d.opt.Interface, err)
	}
	d.mtu, d.kernelAddrs = intf.MTU, addrs
	if d.id.MTU > 0 {
		d.mtu = min(d.mtu, d.id.MTU)
	}
	if _, d.partnerAddrs, err = interfaceAddrs(d.opt.PartnerInterface); err != nil {
		return fmt.Errorf("the partners' interface %s: %w", d.opt.PartnerInterface, err)
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
	if d.wireKind, err = wireFor(d.opt.Wire, d.Streams()); err != nil {
		return err
	}
	switch d.wireKind {
	case WireTCP:
		d.addrs, err = kernelAddrPairs(globalAddrs(d.id.Addrs), d.kernelAddrs, d.opt.Peers)
		return err
	case WireSegments:
		if d.addrs, err = segmentAddrPairs(d.id.Addrs, d.opt.Peers); err != nil {
			return err
		}
		return d.openWire()
	case WirePackets, WireUDP:
	}
	table, err := gidTable(dev)
	if err != nil {
		return err
	}
	if d.addrs, err = d.addrPairs(table); err != nil {
		return err
	}
	if d.wireKind == WireUDP {
		return d.openSockets()
	}
	return d.openWire()
}

// addrPairs returns the addresses of a RoCE device with a GID table, and of the
// judge.
func (d *Device) addrPairs(table []verbs.GIDEntry) (map[int]addrPair, error) {
	if d.wireKind == WireUDP {
		return d.socketAddrs(table)
	}
	return roceAddrPairs(table, d.opt.Peers)
}

// judgeAddrs returns the judge's addresses, or an error if the kernel has one of them.
func (d *Device) judgeAddrs() (addrs []netip.Addr, err error) {
	_, addrs = d.Addresses()
	for _, p := range slices.Concat(d.kernelAddrs, d.partnerAddrs) {
		if slices.Contains(addrs, p.Addr()) {
			return nil, fmt.Errorf("the kernel has the judge's address %v, and would answer: give another address, or remove it from its interface", p.Addr())
		}
	}
	return addrs, nil
}

// openWire opens the packet socket of WirePackets or WireSegments.
func (d *Device) openWire() error {
	addrs, err := d.judgeAddrs()
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(d.id.MAC)
	if err != nil {
		return fmt.Errorf("the agent's Ethernet address of the device's interface %q: %w", d.id.NetDevice, err)
	}
	cfg := wire.EthernetConfig{Interface: d.opt.Interface, Device: mac, Addrs: addrs}
	if d.wireKind == WireSegments {
		cfg.Accept = isTCPTo(addrs)
	}
	w, err := wire.OpenEthernet(cfg)
	if err != nil {
		return err
	}
	d.wire = w
	return nil
}

// Err returns why the device is lost for good; nil while it works.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// agent returns the current client of the agent.
func (d *Device) agent() *agent.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

// Close closes the connection to the agent, which closes the device.
func (d *Device) Close() error {
	var err error
	if d.wire != nil {
		err = d.wire.Close()
	}
	return errors.Join(err, d.agent().Close())
}

// WithBench implements conformance.Lab.
func (d *Device) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	if len(job.Defects) > 0 {
		return fmt.Errorf("defects %v: a device of another host cannot be given defects", job.Defects)
	}
	select {
	case d.sem <- struct{}{}:
		defer func() { <-d.sem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := d.Err(); err != nil {
		return err
	}
	mtu := d.mtu
	if want := job.Setup.MTU; d.wireKind == WireSegments && want > 0 {
		mtu = min(mtu, want) // a smaller MSS is possible
	}
	addrs, err := selectAddrs(job.Setup, d.addrs, mtu)
	if err != nil {
		return err
	}
	client := d.agent()
	r := &deviceCase{lab: d, client: client, addrPair: addrs, mtu: mtu, realTimeCase: realTimeCase{
		world: newRealWorld(), interfaceState: interfaceState{host: client, device: d.name, addrs: d.id.Addrs},
	}}
	outcome := r.runCase(ctx, &job, body)
	restartReason, outcome := r.cleanUp(outcome)
	hostProblem := d.hostProblem(r.hung, outcome)
	if hostProblem != nil {
		outcome = withHostProblem(outcome, hostProblem)
	}
	if restartReason == "" && d.opt.RestartAfter != nil && d.opt.RestartAfter(job.Case) {
		restartReason = "as configured for this case"
	}
	if restartReason != "" || hostProblem != nil {
		d.reset(ctx, job.Case, restartReason, hostProblem)
	}
	return outcome
}

// socketAddrs returns the addresses of a RoCE device and of the judge's UDP
// sockets.
func (d *Device) socketAddrs(table []verbs.GIDEntry) (map[int]addrPair, error) {
	pairs, err := kernelAddrPairs(roceV2Addrs(table), d.kernelAddrs, d.opt.Peers)
	if err == nil && len(d.opt.Peers) == 0 && d.opt.PartnerInterface == d.opt.Interface {
		reservePartnerAddr(pairs)
	}
	return pairs, err
}

// openSockets opens the judge's UDP sockets, and leaves the other addresses to partners.
func (d *Device) openSockets() error {
	device, judge := d.Addresses()
	d.partnerAddrs = slices.DeleteFunc(d.partnerAddrs, func(p netip.Prefix) bool { return slices.Contains(judge, p.Addr()) })
	w, err := wire.OpenUDP(wire.UDPConfig{
		Interface: d.opt.Interface, Port: ib.Port, Addrs: judge, Device: device, LookupIPv4ID: ib.Identify, InNamespace: d.opt.InNamespace,
	})
	if err != nil {
		return err
	}
	d.wire = w
	return nil
}

// Timeouts for the agent to be reached again, the device to open or restart, and
// its addresses to return.
const (
	redialTimeout         = time.Minute
	defaultRestartTimeout = 30 * time.Second
	addrTimeout           = 30 * time.Second
)

// hostProblem returns an error if the device's host has crashed during a case with this outcome. A
// lost agent is a sign of that, and so is a case that hung.
func (d *Device) hostProblem(hung bool, outcome error) error {
	if d.opt.Host == nil {
		return nil
	}
	sign := d.agent().Err()
	if sign == nil && hung {
		sign = outcome
	}
	return d.opt.Host.Problem(sign)
}

// withHostProblem returns the outcome of a case during which the host crashed: it
// is no verdict on the device.
func withHostProblem(outcome, problem error) error {
	if outcome == nil || errors.Is(outcome, agent.ErrLost) {
		return &conformance.CrashError{Cause: problem}
	}
	return fmt.Errorf("%v; %w", outcome, &conformance.CrashError{Cause: problem}) //nolint:errorlint // no violation any more
}

// reset restarts the device after the case id, for the reason why, and reports that by OnNote. If
// the host has a problem, or the device does not restart, it restarts the host.
func (d *Device) reset(ctx context.Context, id, why string, hostProblem error) {
	if ctx.Err() != nil {
		return // no more cases
	}
	if hostProblem != nil {
		d.restartHost(ctx, id, hostProblem.Error())
		return
	}
	if d.agent().Err() != nil {
		fresh, err := d.redial(ctx)
		if err != nil {
			d.fail(fmt.Errorf("the agent was lost in %s, and cannot be reached again: %w", id, err))
			return
		}
		d.setClient(fresh)
		d.opt.OnNote(fmt.Sprintf("The agent was lost in %s, and is reached again", id))
	}
	client := d.agent()
	var err error
	wedged := false
	select {
	case err = <-goCase(func() error { return client.Restart(d.name) }):
	case <-time.After(d.restartTimeout):
		// Most likely the driver has crashed.
		err, wedged = fmt.Errorf("it does not restart within %v", d.restartTimeout), true
	}
	if err == nil {
		err = d.awaitAddrs(client)
	}
	if err == nil {
		const hung = false
		err = d.hostProblem(hung, nil) // the restart may have crashed the host
	}
	switch {
	case err == nil:
		d.opt.OnNote(fmt.Sprintf("%s was restarted after %s (%s)", d.name, id, why))
	case d.opt.Host != nil:
		d.restartHost(ctx, id, fmt.Sprintf("%s; %v", why, err))
	case wedged:
		d.fail(fmt.Errorf("%s wedged in %s (%s): %w, and its host has to be restarted", d.name, id, why, err))
	default:
		d.opt.OnNote(fmt.Sprintf("%s should be restarted after %s (%s): %v", d.name, id, why, err))
	}
}

// restartHost restarts the device's host after the case id, for the reason why, and reports that
// by OnNote.
func (d *Device) restartHost(ctx context.Context, id, why string) {
	why, _, _ = strings.Cut(why, "\n") // the rest is in the result of the case
	_ = d.agent().Close()              // it never fails
	fresh, err := d.opt.Host.Restart(ctx)
	if err == nil {
		d.setClient(fresh)
		err = d.awaitAddrs(fresh)
	}
	if err != nil {
		d.fail(fmt.Errorf("the host of %s was restarted after %s (%s), and its device is not available: %w", d.name, id, why, err))
		return
	}
	d.opt.OnNote(fmt.Sprintf("The host of %s was restarted after %s (%s)", d.name, id, why))
}

// setClient replaces the client after the agent was restarted.
func (d *Device) setClient(fresh *agent.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = fresh
}

// fail records that the device is lost for good.
func (d *Device) fail(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = why
}

// redial connects to the agent again. It retries for up to redialTimeout.
func (d *Device) redial(ctx context.Context) (*agent.Client, error) {
	if d.opt.Redial == nil {
		return nil, errors.New("no redial function")
	}
	ctx, stop := context.WithTimeout(ctx, redialTimeout)
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

// awaitAddrs waits until a restarted device has its addresses again.
func (d *Device) awaitAddrs(client *agent.Client) error {
	if d.Streams() {
		return nil // its interface was not restarted
	}
	for deadline := time.Now().Add(addrTimeout); ; time.Sleep(50 * time.Millisecond) {
		pairs, err := d.queryAddrPairs(client)
		if err == nil && len(pairs) == len(d.addrs) {
			d.addrs = pairs
			return nil
		}
		if time.Now().After(deadline) {
			return cmp.Or(err, fmt.Errorf("it has lost addresses: it had %v, and has %v", d.addrs, pairs))
		}
	}
}

// queryAddrPairs returns the addresses of the device and of the judge for the current GID table.
func (d *Device) queryAddrPairs(client *agent.Client) (pairs map[int]addrPair, err error) {
	dev, err := client.Open(d.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	table, err := gidTable(dev)
	if err != nil {
		return nil, err
	}
	return d.addrPairs(table)
}
