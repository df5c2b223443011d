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
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// deviceCase is a case on a device of another host.
type deviceCase struct {
	realTimeCase
	lab    *Device
	client *agent.Client
	addrPair
	mtu      int // of the path
	dev      verbs.Context
	partners []verbs.Context
	hung     bool
}

// runCase opens the device and runs body, the function of a case. The case fails as hung if the
// agent on the device's host sends no reply for MaxTime, or if it takes longer than
// maxCaseIntervals times MaxTime.
func (r *deviceCase) runCase(ctx context.Context, job *conformance.BenchSpec, body func(*conformance.Bench) error) error {
	b := newBench(job, r.world, r.addrPair, r.mtu)
	b.Caps, b.Partner, b.SetLink, b.SetAddress = r.lab.Attr.Caps, r.openPartner, r.setLink, r.setAddress
	b.SetPath = noImpairments(fmt.Errorf("%w: the judge cannot impair the network between two devices", conformance.ErrBenchCannot))
	if err := r.open(b); err != nil {
		return err
	}
	limit := r.lab.opt.MaxTime
	wd := &watchdog{interval: limit, end: r.world.Now() + maxCaseIntervals*limit, replies: r.client.Replies, lastReplies: r.client.Replies()}
	err := r.world.runBody(ctx, func() error { return body(b) }, wd, r.client.Lost())
	_, r.hung = errors.AsType[*conformance.HangError](err)
	if errors.Is(err, agent.ErrLost) {
		err = cmp.Or(r.client.Err(), err)
	}
	return err
}

// open opens the device and this host's end of its link: a user-space TCP or
// packets on the lab's wire, or TCP of the kernel if the lab has no wire. A device that hangs since
// an earlier case may not open within openTimeout.
func (r *deviceCase) open(b *conformance.Bench) error {
	var dev verbs.Context
	opened := goCase(func() (err error) {
		dev, err = r.client.Open(r.lab.name)
		return err
	})
	select {
	case err := <-opened:
		if err != nil {
			return fmt.Errorf("open the device: %w", err)
		}
		r.dev = dev
	case <-time.After(r.lab.openTimeout):
		r.hung = true
		return fmt.Errorf("the device was not opened within %v", r.lab.openTimeout)
	}
	b.Device = r.dev
	b.Reopen = func() (err error) {
		if err = r.dev.Close(); err != nil {
			return err
		}
		r.dev, err = r.client.Open(r.lab.name)
		b.Device = r.dev
		return err
	}
	if w := r.lab.wire; w != nil && r.lab.Streams() {
		tcp := r.openTCP(w, b.Record, r.peers[0], r.lab.MTU, r.mtu)
		b.Streams, b.RawTCP = tcp, func() (conformance.RawTCP, error) { return tcp, nil }
		return nil
	}
	if w := r.lab.wire; w != nil {
		w.Discard() // packets of earlier cases
		b.UDPSockets = r.lab.Wire == WireUDP
		b.Wire = b.Record.RecordWire(r.world, &realWire{w, r.world, r.lab.MTU})
		return nil
	}
	r.streams = &kernelStreams{w: r.world, inNamespace: func(f func() error) error { return f() }, from: r.peers[0]}
	b.Streams = b.Record.RecordStreams(r.world, r.streams)
	return nil
}

// openPartner opens a partner, an emulated peer of the device under test, at the next address of
// this host in the network of the device.
func (r *deviceCase) openPartner() (verbs.Context, error) {
	var free []netip.Addr
	for _, p := range r.lab.partnerAddrs {
		if p.Contains(r.local[0]) && !p.Addr().IsLinkLocalUnicast() {
			free = append(free, p.Addr())
		}
	}
	next := len(r.partners)
	if r.lab.Streams() && len(free) > 0 {
		next %= len(free) // streams may share addresses
	}
	if next >= len(free) {
		return nil, fmt.Errorf("%w: another partner needs an address of %s in the network of %v, which has %d", conformance.ErrBenchCannot, r.lab.opt.PartnerInterface, r.local[0], len(free))
	}
	opener, err := nics.OfProtocol(r.lab.Protocol()).NewOpener(nics.Setup{})
	if err != nil {
		return nil, err
	}
	dev, err := opener.OnSockets(nics.NICConfig{Name: fmt.Sprintf("partner%d", len(r.partners)+1), Addr: free[next], LineRateBps: socketRateBps, NoGSO: true})
	if err != nil {
		return nil, fmt.Errorf("open a partner at %v: %w", free[next], err)
	}
	r.partners = append(r.partners, dev)
	return dev, nil
}

// setLink sets the device's link up or down on its host.
func (r *deviceCase) setLink(up bool) error {
	for _, a := range r.lab.Identity.Addrs {
		if a.Addr() == r.lab.opt.Agent {
			return fmt.Errorf("%w: the agent is reached over the device's interface: use another interface for it", conformance.ErrBenchCannot)
		}
	}
	return r.interfaceState.setLink(up)
}

// setAddress adds or removes an address of the device's interface.
func (r *deviceCase) setAddress(a netip.Addr, present bool) error {
	switch {
	case !slices.Contains(r.local, a):
		return notLocal(a, r.local)
	case a == r.lab.opt.Agent:
		return fmt.Errorf("%w: the agent is reached at %v: use another address for it", conformance.ErrBenchCannot, a)
	case a.IsLinkLocalUnicast():
		return fmt.Errorf("%w: %v is a link-local address", conformance.ErrBenchCannot, a)
	}
	return r.interfaceState.setAddress(a, present)
}

// closeTimeout is how long a case may take to end and its device to close: Linux's
// iWARP releases a connection in progress after ten seconds.
const closeTimeout = 15 * time.Second

// cleanUp closes the devices, undoes changes of the link and addresses, and waits for the end of
// the case, all within closeTimeout. It returns the reason to restart the device, "" if there is
// none, and the outcome of the case.
func (r *deviceCase) cleanUp(outcome error) (restartReason string, _ error) {
	r.stop()
	timeout, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	closed := goCase(func() error {
		return errors.Join(closeDevices(append([]verbs.Context{r.dev}, r.partners...)), r.restore())
	})
	select {
	case err := <-closed:
		if err != nil && outcome == nil {
			outcome = err
		}
		if err != nil {
			restartReason = err.Error()
		}
	case <-timeout.Done():
		restartReason = fmt.Sprintf("it was not closed within %v", closeTimeout)
		if outcome == nil {
			outcome = errors.New("close the device: " + restartReason)
		}
	}
	r.world.awaitEnd(timeout) // r.stop makes the body and the tasks of the case panic in their next wait
	if lost := r.client.Err(); lost != nil {
		return "the agent was lost", fmt.Errorf("while the case ran: %w", lost)
	}
	if r.hung {
		restartReason = "the case did not end"
	}
	return restartReason, outcome
}
