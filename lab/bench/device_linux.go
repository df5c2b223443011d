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
	"sync/atomic"
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
	DeviceProperties
	name                        string
	opt                         DeviceOptions
	kernelAddrs                 []netip.Prefix // of Interface
	partnerAddrs                []netip.Prefix // of PartnerInterface
	wire                        openWire       // nil with WireTCP
	sem                         chan struct{}
	openTimeout, restartTimeout time.Duration

	client atomic.Pointer[agent.Client]

	mu  sync.Mutex
	err error // set when the device is lost for good
}

// OnDevice returns a lab that runs cases on a device of another host, by the agent there. Some
// wires need CAP_NET_RAW: see [DeviceWire]. The lab owns the client, also if OnDevice fails.
func OnDevice(client *agent.Client, device string, opt DeviceOptions) (*Device, error) {
	opt.MaxTime, opt.PartnerInterface = cmp.Or(opt.MaxTime, defaultMaxRealTime), cmp.Or(opt.PartnerInterface, opt.Interface)
	if opt.OnNote == nil {
		opt.OnNote = func(string) {}
	}
	d := &Device{name: device, opt: opt, sem: make(chan struct{}, 1), openTimeout: defaultRestartTimeout, restartTimeout: defaultRestartTimeout}
	d.client.Store(client)
	if err := d.identify(); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", device, err), d.Close())
	}
	return d, nil
}

// identify queries the device, and selects the addresses and the wire.
func (d *Device) identify() (err error) {
	client := d.client.Load()
	if d.Identity, err = identityOf(client, d.name); err != nil {
		return err
	}
	intf, addrs, err := interfaceAddrs(d.opt.Interface)
	if err != nil {
		return fmt.Errorf("the judge's interface %s: %w", d.opt.Interface, err)
	}
	d.MTU, d.kernelAddrs = intf.MTU, addrs
	if d.Identity.MTU > 0 {
		d.MTU = min(d.MTU, d.Identity.MTU)
	}
	if _, d.partnerAddrs, err = interfaceAddrs(d.opt.PartnerInterface); err != nil {
		return fmt.Errorf("the partners' interface %s: %w", d.opt.PartnerInterface, err)
	}
	dev, err := client.Open(d.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if d.Attr, err = dev.QueryDevice(); err != nil {
		return err
	}
	if d.Wire, err = wireFor(d.opt.Wire, d.Streams()); err != nil {
		return err
	}
	if d.addrs, err = d.addrPairs(dev); err != nil {
		return err
	}
	switch d.Wire {
	case WireTCP:
		return nil
	case WireUDP:
		return d.openSockets()
	default:
		return d.openWire()
	}
}

// addrPairs returns the addresses of the open device and of this host. A RoCE device has the
// addresses of the RoCEv2 entries in its GID table, an iWARP device those of its interface.
// With WireUDP and no configured Peers, it leaves an address of this host to partner devices, unless
// these have an interface of their own.
func (d *Device) addrPairs(dev verbs.Context) (map[int]addrPair, error) {
	deviceIPs := globalAddrs(d.Identity.Addrs)
	if !d.Streams() {
		var err error
		if deviceIPs, err = roceV2Addrs(dev); err != nil {
			return nil, err
		}
	}
	switch d.Wire {
	case WireSegments:
		return pairWithRange("address", deviceIPs, d.opt.Peers)
	case WirePackets:
		return pairWithRange("RoCEv2 address", deviceIPs, append(slices.Clone(d.opt.Peers), linkLocalPeers))
	case WireTCP, WireUDP:
	}
	pairs, err := kernelAddrPairs(deviceIPs, d.kernelAddrs, d.opt.Peers)
	if err == nil && d.Wire == WireUDP && len(d.opt.Peers) == 0 && d.opt.PartnerInterface == d.opt.Interface {
		reservePartnerAddr(pairs)
	}
	return pairs, err
}

// openWire opens the packet socket of WirePackets or WireSegments.
func (d *Device) openWire() error {
	_, addrs := d.Addresses()
	for _, p := range slices.Concat(d.kernelAddrs, d.partnerAddrs) {
		if slices.Contains(addrs, p.Addr()) {
			return fmt.Errorf("the kernel has the judge's address %v, and would answer: give another address, or remove it from its interface", p.Addr())
		}
	}
	mac, err := net.ParseMAC(d.Identity.MAC)
	if err != nil {
		return fmt.Errorf("the agent's Ethernet address of the device's interface %q: %w", d.Identity.NetDevice, err)
	}
	cfg := wire.EthernetConfig{Interface: d.opt.Interface, Device: mac, Addrs: addrs}
	if d.Wire == WireSegments {
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

// Close closes the connection to the agent, which closes the device.
func (d *Device) Close() error {
	var err error
	if d.wire != nil {
		err = d.wire.Close()
	}
	return errors.Join(err, d.client.Load().Close())
}

// WithBench implements conformance.Lab: it runs one case at a time on the device. It restarts the
// device or its host after a case that hung or crashed them, or that RestartAfter selects.
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
	mtu := d.MTU
	if want := job.Setup.MTU; d.Wire == WireSegments && want > 0 {
		mtu = min(mtu, want) // a smaller MSS is possible
	}
	addrs, err := selectAddrs(job.Setup, d.addrs, mtu)
	if err != nil {
		return err
	}
	client := d.client.Load()
	r := &deviceCase{lab: d, client: client, addrPair: addrs, mtu: mtu, realTimeCase: realTimeCase{
		world: newRealWorld(), interfaceState: interfaceState{host: client, device: d.name, addrs: d.Identity.Addrs},
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

// openSockets opens UDP sockets at the selected addresses of this host, and leaves its others to
// partner devices.
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
// lost agent is a sign of that, and so is a case that hung; the host is asked even without a sign.
func (d *Device) hostProblem(hung bool, outcome error) error {
	if d.opt.Host == nil {
		return nil
	}
	sign := d.client.Load().Err()
	if sign == nil && hung {
		sign = outcome
	}
	return d.opt.Host.Problem(sign)
}

// withHostProblem returns the outcome of a case during which the host crashed. It is a CrashError,
// and no longer a violation, because the crash says nothing about the device.
func withHostProblem(outcome, problem error) error {
	if outcome == nil || errors.Is(outcome, agent.ErrLost) {
		return &conformance.CrashError{Cause: problem}
	}
	return fmt.Errorf("%v; %w", outcome, &conformance.CrashError{Cause: problem}) //nolint:errorlint // no violation any more
}

// reset restarts the device after a case, and reports that with the reason by OnNote. If the host
// has crashed, or the device does not restart, it restarts the host. Without control of the host,
// it gives up a device that hangs or whose agent is lost, and only reports other errors.
func (d *Device) reset(ctx context.Context, caseID, reason string, hostProblem error) {
	if ctx.Err() != nil {
		return // no more cases
	}
	if hostProblem != nil {
		d.restartHost(ctx, caseID, hostProblem.Error())
		return
	}
	if d.client.Load().Err() != nil {
		newClient, err := d.redial(ctx)
		if err != nil {
			d.fail(fmt.Errorf("the agent was lost in %s, and cannot be reached again: %w", caseID, err))
			return
		}
		d.client.Store(newClient)
		d.opt.OnNote(fmt.Sprintf("The agent was lost in %s, and is reached again", caseID))
	}
	client := d.client.Load()
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
		d.opt.OnNote(fmt.Sprintf("%s was restarted after %s (%s)", d.name, caseID, reason))
	case d.opt.Host != nil:
		d.restartHost(ctx, caseID, fmt.Sprintf("%s; %v", reason, err))
	case wedged:
		d.fail(fmt.Errorf("%s wedged in %s (%s): %w, and its host has to be restarted", d.name, caseID, reason, err))
	default:
		d.opt.OnNote(fmt.Sprintf("%s should be restarted after %s (%s): %v", d.name, caseID, reason, err))
	}
}

// restartHost restarts the device's host after a case, and reports that with the reason by OnNote.
func (d *Device) restartHost(ctx context.Context, caseID, reason string) {
	reason, _, _ = strings.Cut(reason, "\n") // the rest is in the result of the case
	_ = d.client.Load().Close()              // it never fails
	newClient, err := d.opt.Host.Restart(ctx)
	if err == nil {
		d.client.Store(newClient)
		err = d.awaitAddrs(newClient)
	}
	if err != nil {
		d.fail(fmt.Errorf("the host of %s was restarted after %s (%s), and its device is not available: %w", d.name, caseID, reason, err))
		return
	}
	d.opt.OnNote(fmt.Sprintf("The host of %s was restarted after %s (%s)", d.name, caseID, reason))
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

// awaitAddrs waits until a restarted device has addresses of as many families as before.
func (d *Device) awaitAddrs(client *agent.Client) error {
	if d.Streams() {
		return nil // a device over TCP uses the host's interface, which was not restarted
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

// queryAddrPairs opens the device, and returns its addresses and those of this host, by address
// family (4 or 6).
func (d *Device) queryAddrPairs(client *agent.Client) (pairs map[int]addrPair, err error) {
	dev, err := client.Open(d.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return d.addrPairs(dev)
}
