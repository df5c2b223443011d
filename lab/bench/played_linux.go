package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/tcpwire"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs"
)

// played is a case at a table.
type played struct {
	table   *table
	wish    *wish
	world   *realWorld
	streams *kernelStreams
	byHand  *tcpwire.Host // nil if the case did not ask for it
	devices []verbs.Context
	left    <-chan error // of the body that has not ended; nil if it has
}

// open opens the device and the peer's end of its cable.
func (p *played) open(b *conformance.Bench, record *conformance.Record) (err error) {
	if err := p.table.fence(p.wish.peers[0], p.wish.local[0]); err != nil {
		return err
	}
	p.devices = make([]verbs.Context, 1)
	if err := p.openTested(b); err != nil {
		return err
	}
	b.Reopen = func() error {
		if err := p.devices[0].Close(); err != nil {
			return err
		}
		return p.openTested(b)
	}
	attr, err := b.Device.QueryDevice()
	if err != nil {
		return err
	}
	b.Caps = attr.Caps
	if w := p.table.wire; w != nil {
		w.Forget()
		b.Wire = record.Recorded(p.world, &realWire{w, p.world, p.wish})
		return nil
	}
	b.Segments = func() (conformance.Segments, error) { return p.segments(record) }
	p.streams = &kernelStreams{w: p.world, within: p.table.peer.Do, from: p.wish.peers[0]}
	b.Streams = record.RecordedStreams(p.world, p.streams)
	return nil
}

// openTested opens the device under test.
func (p *played) openTested(b *conformance.Bench) error {
	at := p.wish.place(socketRateBps)
	at.Single = true // as packets are on the wire
	d, err := p.openDevice(p.table.device, p.wish.device, at)
	if err != nil {
		return err
	}
	p.devices[0], b.Device = d, p.wish.claims.Of(d)
	return nil
}

func (p *played) openDevice(ns *netns.NS, o nics.Opener, at nics.Place) (d verbs.Context, err error) {
	err = ns.Do(func() error {
		d, err = o.OnSockets(at)
		return err
	})
	if err != nil {
		return nil, p.wish.refused(err)
	}
	return d, nil
}

// partner opens another device, on a host of its own.
func (p *played) partner() (verbs.Context, error) {
	n := len(p.devices)
	if n > partners {
		return nil, fmt.Errorf("a partner more than %d: %w", partners, conformance.ErrCannot)
	}
	at := nics.Place{Name: fmt.Sprintf("partner%d", n), Addr: hostAddr(p.wish.family, firstPartner+byte(n-1)), LineRateBps: socketRateBps, PKeys: partitions()}
	d, err := p.openDevice(p.table.partner, p.wish.partner, at)
	if err != nil {
		return nil, err
	}
	p.devices = append(p.devices, d)
	return d, nil
}

// cleanUp closes what the case leaves open, and says whether the table can be used
// again.
func (p *played) cleanUp() (clean bool, err error) {
	close(p.world.end)
	if p.streams != nil {
		p.streams.close()
	}
	if p.byHand != nil {
		p.byHand.Close()
	}
	late, stop := context.WithTimeout(context.Background(), grace)
	defer stop()
	clean = true
	select {
	case err = <-start(p.closeDevices):
	case <-late.Done():
		clean, err = false, fmt.Errorf("the device was not closed within %v", grace)
	}
	if p.left != nil {
		select {
		case <-p.left:
		case <-late.Done():
			clean = false
		}
	}
	p.world.mu.Lock()
	tasks := p.world.tasks
	p.world.mu.Unlock()
	for _, t := range tasks {
		select {
		case <-t.ended:
		case <-late.Done():
			clean = false
		}
	}
	return clean, errors.Join(err, p.table.setLink(true), p.table.restoreAddrs(), p.table.setPath(conformance.Path{}))
}

// setAddress takes an address from the device's interface, or gives it back.
func (p *played) setAddress(a netip.Addr, present bool) error {
	if !slices.Contains(p.wish.local, a) {
		return notLocal(a, p.wish.local)
	}
	return p.table.setAddress(a, present)
}

// segments opens the peer's TCP that is made by hand.
func (p *played) segments(record *conformance.Record) (conformance.Segments, error) {
	if p.byHand == nil {
		wire, err := p.table.segmentWire()
		if err != nil {
			return nil, err
		}
		p.byHand = newSegments(p.world, wire, record, hostAddr(p.wish.family, segmentPeer), p.wish.mtu, p.wish.mtu)
	}
	return record.RecordedSegments(p.world, p.byHand), nil
}

func (p *played) closeDevices() error {
	var errs []error
	for _, d := range p.devices {
		if d == nil {
			continue // it did not open
		}
		if err := d.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", d.Info().Name, err))
		}
	}
	return errors.Join(errs...)
}

// openWire is a wire that outlives cases.
type openWire interface {
	conformance.Wire
	// Epoch is time 0 of its frames.
	Epoch() time.Time
	// Forget begins anew, for another case.
	Forget()
	Close() error
}

// realWire is a wire whose frames have the times of the case.
type realWire struct {
	openWire
	w    *realWorld
	wish *wish
}

// Send implements conformance.Wire. Behind the switch's port is the device's cable.
func (x *realWire) Send(packet []byte) error {
	if err := x.wish.tooLong(packet); err != nil {
		return err
	}
	return x.openWire.Send(packet)
}

// recvStep is how long a case is not looked after while it waits.
const recvStep = 50 * time.Millisecond

// Recv implements conformance.Wire.
func (x *realWire) Recv(timeout time.Duration) (conformance.Frame, error) {
	defer x.w.waiting("a packet from the device")()
	for deadline := time.Now().Add(timeout); ; {
		step := recvStep
		if timeout >= 0 {
			step = min(step, max(0, time.Until(deadline)))
		}
		f, err := x.openWire.Recv(step)
		f.At -= x.w.epoch.Sub(x.Epoch())
		last := timeout >= 0 && step < recvStep
		if err == nil || last || !errors.Is(err, verbs.ErrTimeout) || x.w.over() {
			return f, err
		}
	}
}
