package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs"
)

// Namespaces is a lab in network namespaces and real time.
type Namespaces struct {
	provider *nics.Provider
	opt      NamespaceOptions
	sem      chan struct{} // limits concurrent cases

	mu     sync.Mutex
	free   []*benchNetwork
	closed bool
}

// InNamespaces returns a lab of devices on sockets. The process must be able to
// create network namespaces: as root, or in a process of netns.StartUnshared.
//
// A device that panics in a goroutine of its own ends the process.
func InNamespaces(p *nics.Provider, opt NamespaceOptions) (*Namespaces, error) {
	opt.Parallel, opt.MaxTime = max(opt.Parallel, 1), cmp.Or(opt.MaxTime, defaultMaxRealTime)
	l := &Namespaces{provider: p, opt: opt, sem: make(chan struct{}, opt.Parallel)}
	first, err := newBenchNetwork(p.OverTCP) // fails early if namespaces are not available
	switch {
	case errors.Is(err, unix.EPERM) && netns.Available() == nil:
		return nil, fmt.Errorf("this process cannot create network namespaces: start it by netns.StartUnshared: %w", unix.EPERM)
	case err != nil:
		return nil, fmt.Errorf("a bench in network namespaces: %w", err)
	}
	l.free = append(l.free, first)
	return l, nil
}

// Close removes the namespaces. No case may be running.
func (l *Namespaces) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	errs := make([]error, 0, len(l.free))
	for _, t := range l.free {
		errs = append(errs, t.close())
	}
	l.free = nil
	return errors.Join(errs...)
}

// takeNetwork returns an unused network, or builds one.
func (l *Namespaces) takeNetwork() (*benchNetwork, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.New("the lab is closed")
	}
	if n := len(l.free); n > 0 {
		t := l.free[n-1]
		l.free = l.free[:n-1]
		return t, nil
	}
	return newBenchNetwork(l.provider.OverTCP)
}

// putNetwork makes a network available to other cases. It closes a network that is not clean: what
// a case has left there would affect the next.
func (l *Namespaces) putNetwork(t *benchNetwork, clean bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !clean || l.closed {
		return t.close()
	}
	l.free = append(l.free, t)
	return nil
}

// WithBench implements conformance.Lab: it runs body, a case, with a bench (a device under test,
// its network and peers). Up to opt.Parallel cases run at a time, each in a separate network.
func (l *Namespaces) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	cfg, err := newBenchConfig(l.provider, l.opt.Restrictions, &job)
	if err != nil {
		return err
	}
	if cfg.mtu < minMTU || cfg.mtu > defaultMTU {
		return fmt.Errorf("%w: an MTU of %d: the links of this bench have %d, the minimum of IPv6, to %d", conformance.ErrBenchCannot, cfg.mtu, minMTU, defaultMTU)
	}
	select {
	case l.sem <- struct{}{}:
		defer func() { <-l.sem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t, err := l.takeNetwork()
	if err != nil {
		return err
	}
	p := &netnsCase{net: t, cfg: cfg, realTimeCase: realTimeCase{world: newRealWorld(), interfaceState: interfaceState{host: t}}}
	for _, a := range cfg.local {
		p.addrs = append(p.addrs, netip.PrefixFrom(a, a.BitLen()))
	}
	outcome := p.runCase(ctx, &job, body, l.opt.MaxTime)
	clean, err := p.cleanUp()
	putErr := l.putNetwork(t, clean)
	return cmp.Or(outcome, err, putErr)
}

// runCase creates the bench of a case (the device under test and its peers), and runs the body of
// the case on it, for maxTime at most.
func (p *netnsCase) runCase(ctx context.Context, job *conformance.BenchSpec, body func(*conformance.Bench) error, maxTime time.Duration) error {
	if err := p.net.setMTU(p.cfg.mtu); err != nil {
		return err
	}
	b := newBench(job, p.world, p.cfg.addrPair, p.cfg.mtu)
	b.Partner, b.SetLink, b.SetAddress, b.SetPath = p.openPartner, p.setLink, p.setAddress, p.net.setPath
	if err := p.open(b); err != nil {
		return err
	}
	return p.world.runBody(ctx, func() error { return body(b) }, &watchdog{interval: maxTime}, nil) // no agent can be lost
}

// realTimeCase is the part of a case in real time that netnsCase and deviceCase share.
type realTimeCase struct {
	world   *realWorld
	streams *kernelStreams // nil unless the case uses the kernel's TCP
	tcpHost *wire.TCPHost  // nil unless the case uses the user-space TCP
	interfaceState
}

// stop makes the next blocking call of the case panic, and closes its connections.
func (r *realTimeCase) stop() {
	r.world.stop()
	if r.streams != nil {
		r.streams.close()
	}
	if r.tcpHost != nil {
		r.tcpHost.Close()
	}
}

// netnsCase is a case on a network of namespaces.
type netnsCase struct {
	realTimeCase
	net     *benchNetwork
	cfg     *benchConfig
	devices []verbs.Context
}

// open waits for packets of earlier cases to pass (fence), and opens the device and the peer's end
// of its link: packets on a wire, or TCP of the kernel and, on demand, TCP in user space.
func (p *netnsCase) open(b *conformance.Bench) error {
	if err := p.net.fence(p.cfg.peers[0], p.cfg.local[0]); err != nil {
		return err
	}
	p.devices = make([]verbs.Context, 1)
	if err := openTested(b, p.openTested); err != nil {
		return err
	}
	if w := p.net.wire; w != nil {
		w.Discard()
		b.Wire = b.Record.RecordWire(p.world, &realWire{w, p.world, p.cfg.mtu})
		return nil
	}
	b.RawTCP = func() (conformance.RawTCP, error) { return p.rawTCP(b.Record) }
	p.streams = &kernelStreams{w: p.world, inNamespace: p.net.peer.Do, from: p.cfg.peers[0]}
	b.Streams = b.Record.RecordStreams(p.world, p.streams)
	return nil
}

// openTested opens the device under test, with the restrictions of the lab.
func (p *netnsCase) openTested() (d verbs.Context, err error) {
	nicConfig := p.cfg.nicConfig(socketRateBps)
	nicConfig.NoGSO = true // packets as on the wire
	if d, err = p.openDevice(p.net.device, p.cfg.device, nicConfig); err != nil {
		return nil, err
	}
	p.devices[0] = d
	return p.cfg.restrictions.Apply(d), nil
}

// openDevice opens a device on sockets of a namespace.
func (p *netnsCase) openDevice(ns *netns.NS, o nics.Opener, nicConfig nics.NICConfig) (d verbs.Context, err error) {
	err = ns.Do(func() error {
		d, err = o.OnSockets(nicConfig)
		return err
	})
	if err != nil {
		return nil, p.cfg.openError(err)
	}
	return d, nil
}

// openPartner opens a partner, a peer device without defects, in the partners' namespace.
func (p *netnsCase) openPartner() (verbs.Context, error) {
	n := len(p.devices) // the number of the partner, from 1 on: devices[0] is the device under test
	if n > partners {
		return nil, fmt.Errorf("more than %d partners: %w", partners, conformance.ErrBenchCannot)
	}
	d, err := p.openDevice(p.net.partner, p.cfg.partner, p.cfg.partnerConfig(n, socketRateBps))
	if err != nil {
		return nil, err
	}
	p.devices = append(p.devices, d)
	return d, nil
}

// cleanUp closes the devices, and undoes changes of the link, addresses and path. clean is false if
// the device or the case has not ended in time, or a change could not be undone, so that the
// network cannot be used again.
func (p *netnsCase) cleanUp() (clean bool, err error) {
	p.stop()
	timeout, cancel := context.WithTimeout(context.Background(), cleanUpTimeout)
	defer cancel()
	clean = true
	select {
	case err = <-goCase(func() error { return closeDevices(p.devices) }):
	case <-timeout.Done():
		clean, err = false, fmt.Errorf("the device was not closed within %v", cleanUpTimeout)
	}
	clean = p.world.awaitEnd(timeout) && clean
	if restoreErr := errors.Join(p.restore(), p.net.setPath(conformance.Path{})); restoreErr != nil {
		// It is not wrapped: the verdict must be broken, even if it is ErrBenchCannot.
		clean, err = false, errors.Join(err, fmt.Errorf("restore the network: %v", restoreErr)) //nolint:errorlint // see above
	}
	return clean, err
}

// rawTCP returns the peer's user-space TCP, which it creates on first use.
func (p *netnsCase) rawTCP(record *conformance.Record) (conformance.RawTCP, error) {
	if p.tcpHost != nil {
		return record.RecordRawTCP(p.world, p.tcpHost), nil
	}
	wire, err := p.net.segmentWire()
	if err != nil {
		return nil, err
	}
	return p.openTCP(wire, record, hostAddr(p.cfg.family, segmentPeer), p.cfg.mtu, p.cfg.mtu), nil
}

// openWire is a wire that is used for several cases.
type openWire interface {
	conformance.Wire
	// Epoch returns time 0 of its frames.
	Epoch() time.Time
	// Discard discards received frames.
	Discard()
	Close() error
}

// realWire is a wire whose frames have the times of the case.
type realWire struct {
	openWire
	w   *realWorld
	mtu int // of the device's link
}

// Send implements conformance.Wire. It checks the MTU of the device's link, which may be smaller
// than that of the socket's interface.
func (x *realWire) Send(packet []byte) error {
	if err := checkMTU(packet, x.mtu); err != nil {
		return err
	}
	return x.openWire.Send(packet)
}

// recvPollInterval is how often Recv checks whether the case was stopped.
const recvPollInterval = 50 * time.Millisecond

// Recv implements conformance.Wire. A negative timeout means none. The frame's time is relative to
// the start of the case. startWait records the wait until its result is called.
func (x *realWire) Recv(timeout time.Duration) (conformance.Frame, error) {
	defer x.w.startWait("a packet from the device")()
	for deadline := time.Now().Add(timeout); ; {
		step := recvPollInterval
		if timeout >= 0 {
			step = min(step, max(0, time.Until(deadline)))
		}
		f, err := x.openWire.Recv(step) // in steps, to notice that the case was stopped
		f.At -= x.w.epoch.Sub(x.Epoch())
		lastStep := timeout >= 0 && step < recvPollInterval // this step ended at the deadline
		if err == nil || lastStep || !errors.Is(err, verbs.ErrTimeout) || x.w.stopped() {
			return f, err
		}
	}
}

// linkController changes the link and the addresses of a device's interface: an agent.Host, an
// agent.Client or a benchNetwork.
type linkController interface {
	SetLink(device string, up bool) error
	SetAddress(device string, addr netip.Prefix, present bool) error
}

// interfaceState changes the interface of a device for a case, and restores it.
type interfaceState struct {
	host     linkController
	device   string
	addrs    []netip.Prefix // of the interface at the start
	linkDown bool
	removed  []netip.Addr
}

// setLink sets the device's link up or down.
func (s *interfaceState) setLink(up bool) error {
	err := wrapCannot(s.host.SetLink(s.device, up))
	if err == nil {
		s.linkDown = !up
	}
	return err
}

// setAddress removes an address that the interface had at the start, or adds it again.
func (s *interfaceState) setAddress(a netip.Addr, present bool) error {
	if isPresent := !slices.Contains(s.removed, a); isPresent == present {
		return nil
	}
	i := slices.IndexFunc(s.addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	if i < 0 {
		return fmt.Errorf("%w: %v is not an address of the device's interface", conformance.ErrBenchCannot, a)
	}
	if err := wrapCannot(s.host.SetAddress(s.device, s.addrs[i], present)); err != nil {
		return err
	}
	s.removed = slices.DeleteFunc(s.removed, func(t netip.Addr) bool { return t == a })
	if !present {
		s.removed = append(s.removed, a)
	}
	return nil
}

// restore sets the link up and adds the removed addresses again.
func (s *interfaceState) restore() error {
	const up, present = true, true
	var errs []error
	if s.linkDown {
		errs = append(errs, s.setLink(up))
	}
	for _, a := range slices.Clone(s.removed) { // setAddress changes s.removed
		errs = append(errs, s.setAddress(a, present))
	}
	return errors.Join(errs...)
}

// wrapCannot adds conformance.ErrBenchCannot to agent.ErrHostCannot.
func wrapCannot(err error) error {
	if errors.Is(err, agent.ErrHostCannot) {
		return fmt.Errorf("%w: %w", conformance.ErrBenchCannot, err)
	}
	return err
}
