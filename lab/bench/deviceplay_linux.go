package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/tcpwire"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// remotePlay is a case on a device of another host.
type remotePlay struct {
	lab     *Device
	client  *agent.Client
	ends    ends
	mtu     int // of the path, by the case's wish
	world   *realWorld
	streams *kernelStreams
	byHand  *tcpwire.Host
	dev     verbs.Context
	others  []verbs.Context // partners
	left    <-chan error    // of the body that has not ended; nil if it has
	hung    bool
	down    bool         // the cable is out
	taken   []netip.Addr // from the device
}

// play makes the bench and runs the body on it.
func (r *remotePlay) play(ctx context.Context, job *conformance.Job, body func(*conformance.Bench) error) error {
	b := &conformance.Bench{
		World: r.world, Caps: r.lab.attr.Caps, Local: r.ends.local, Peers: r.ends.peers, MTU: r.mtu, Rand: caseRand(job.Seed), Record: job.Record,
		Partner: r.partner,
		SetLink: r.setLink, SetAddress: r.setAddress,
		SetHandler: func(p conformance.Path) error {
			if p == (conformance.Path{}) {
				return nil
			}
			return fmt.Errorf("%w: the network between two devices is none of the judge's", conformance.ErrCannot)
		},
	}
	if err := r.open(b, job.Record); err != nil {
		return err
	}
	return r.run(ctx, func() error { return body(b) })
}

// run runs the body until it returns, the agent is lost, or the case hangs.
func (r *remotePlay) run(ctx context.Context, body func() error) error {
	w := newWatchdog(r.lab.opt.MaxTime, r.world.Now(), r.client.Replies())
	tick := time.NewTicker(w.limit)
	defer tick.Stop()
	done := start(body)
	for {
		select {
		case err := <-done:
			if err == nil {
				err = r.world.leftTasks()
			}
			return err
		case err := <-r.world.crash:
			r.left = done
			return err
		case <-ctx.Done():
			r.left = done
			return context.Cause(ctx)
		case <-r.client.Lost():
			r.left = done
			return r.client.Err()
		case <-tick.C:
			if !w.hung(r.world.Now(), r.client.Replies()) {
				continue
			}
			r.left, r.hung = done, true
			return &conformance.HangError{Waiting: fmt.Sprintf("%v have passed, and %s", r.world.Now().Round(w.limit), r.world.waitsFor())}
		}
	}
}

// open opens the device and the judge's end of its cable. A device that an earlier case
// has wedged may never open.
func (r *remotePlay) open(b *conformance.Bench, record *conformance.Record) error {
	type opening struct {
		dev verbs.Context
		err error
	}
	opened := make(chan opening, 1)
	go func() {
		dev, err := r.client.Open(r.lab.name)
		opened <- opening{dev, err}
	}()
	late := time.NewTimer(r.lab.opening)
	defer late.Stop()
	select {
	case o := <-opened:
		if o.err != nil {
			return fmt.Errorf("open the device: %w", o.err)
		}
		r.dev = o.dev
	case <-late.C:
		r.hung = true
		return fmt.Errorf("the device was not opened within %v", r.lab.opening)
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
		r.byHand = newSegments(r.world, w, record, r.ends.peers[0], r.lab.mtu, r.mtu)
		tcp := record.RecordedSegments(r.world, r.byHand)
		b.Streams, b.Segments = tcp, func() (conformance.Segments, error) { return tcp, nil }
		return nil
	}
	if w := r.lab.wire; w != nil {
		w.Forget()
		b.Sockets = r.lab.way == WireUDP
		b.Wire = record.Recorded(r.world, &realWire{w, r.world, &wish{mtu: r.lab.mtu}})
		return nil
	}
	r.streams = &kernelStreams{w: r.world, within: here, from: r.ends.peers[0]}
	b.Streams = record.RecordedStreams(r.world, r.streams)
	return nil
}

// partner opens an emulated device on the judge's side, at an address that the kernel here
// has in the device's network: one for each of these.
func (r *remotePlay) partner() (verbs.Context, error) {
	var free []netip.Addr
	for _, p := range r.lab.free {
		if p.Contains(r.ends.local[0]) && !p.Addr().IsLinkLocalUnicast() {
			free = append(free, p.Addr())
		}
	}
	n, at := len(r.others), len(r.others)
	if r.lab.Streams() && len(free) > 0 {
		at %= len(free) // streams are told apart by their ports
	}
	if at >= len(free) {
		return nil, fmt.Errorf("%w: a partner of the device would be at an address that %s has in the network of %v, of which there are %d", conformance.ErrCannot, r.lab.opt.Partners, r.ends.local[0], len(free))
	}
	kind := "softroce"
	if r.lab.Streams() {
		kind = "softiwarp"
	}
	p, err := nics.Find(kind)
	if err != nil {
		return nil, err
	}
	maker, err := p.With(nics.Setup{})
	if err != nil {
		return nil, err
	}
	dev, err := maker.OnSockets(nics.Place{Name: fmt.Sprintf("partner%d", n+1), Addr: free[at], LineRateBps: socketRateBps, Single: true})
	if err != nil {
		return nil, fmt.Errorf("a partner of the device at %v: %w", free[at], err)
	}
	r.others = append(r.others, dev)
	return dev, nil
}

// setLink takes the device's cable out, as far as its host can make it believe that.
func (r *remotePlay) setLink(up bool) error {
	for _, a := range r.lab.id.Addrs {
		if a.Addr() == r.lab.opt.Agent {
			return fmt.Errorf("%w: the agent is reached over the device's own interface: give its host another for that", conformance.ErrCannot)
		}
	}
	if err := able(r.client.SetLink(r.lab.name, up)); err != nil {
		return err
	}
	r.down = !up
	return nil
}

// setAddress takes an address from the device's interface, or gives it back.
func (r *remotePlay) setAddress(a netip.Addr, present bool) error {
	i := slices.IndexFunc(r.lab.id.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	switch {
	case !slices.Contains(r.ends.local, a):
		return notLocal(a, r.ends.local)
	case i < 0:
		return fmt.Errorf("%w: %v is no address of the device's interface by itself", conformance.ErrCannot, a)
	case a == r.lab.opt.Agent:
		return fmt.Errorf("%w: the agent is reached at %v: give its host another address for that", conformance.ErrCannot, a)
	case a.IsLinkLocalUnicast():
		return fmt.Errorf("%w: %v is the interface's own, which comes and goes with it", conformance.ErrCannot, a)
	}
	if err := able(r.client.SetAddress(r.lab.name, r.lab.id.Addrs[i], present)); err != nil {
		return err
	}
	r.taken = slices.DeleteFunc(r.taken, func(t netip.Addr) bool { return t == a })
	if !present {
		r.taken = append(r.taken, a)
	}
	return nil
}

// able says in the words of cases that a host is not able to do something.
func able(err error) error {
	if errors.Is(err, agent.ErrCannot) {
		return fmt.Errorf("%w: %w", conformance.ErrCannot, err)
	}
	return err
}

// hostGrace is what a case on a device of another host has to end, and the device to be
// closed: Linux's iWARP lets go of a connection that is being made when the peer has
// answered, or after ten seconds.
const hostGrace = 15 * time.Second

// cleanUp closes what the case leaves open. It returns why the device has to be
// restarted, which is empty if it has not, and what came of the case.
func (r *remotePlay) cleanUp(outcome error) (restart string, _ error) {
	close(r.world.end)
	if r.streams != nil {
		r.streams.close()
	}
	if r.byHand != nil {
		r.byHand.Close()
	}
	late, stop := context.WithTimeout(context.Background(), hostGrace)
	defer stop()
	closed := start(r.restore)
	select {
	case err := <-closed:
		if err != nil && outcome == nil {
			outcome = err
		}
		if err != nil {
			restart = err.Error()
		}
	case <-late.Done():
		restart = fmt.Sprintf("it was not closed within %v", hostGrace)
		if outcome == nil {
			outcome = errors.New("close the device: " + restart)
		}
	}
	r.awaitBody(late)
	if lost := r.client.Err(); lost != nil {
		// Whatever the case took that for.
		return "the agent was lost", fmt.Errorf("while the case ran: %w", lost)
	}
	if r.hung {
		restart = "the case came to no end"
	}
	return restart, outcome
}

// awaitBody gives the case and its tasks time to end: their next call fails.
func (r *remotePlay) awaitBody(late context.Context) {
	if r.left != nil {
		select {
		case <-r.left:
		case <-late.Done():
		}
	}
	r.world.mu.Lock()
	tasks := r.world.tasks
	r.world.mu.Unlock()
	for _, t := range tasks {
		select {
		case <-t.ended:
		case <-late.Done():
		}
	}
}

// restore closes the device, and gives back what was taken from it.
func (r *remotePlay) restore() error {
	var errs []error
	if r.dev != nil {
		if err := r.dev.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, fmt.Errorf("close the device: %w", err))
		}
	}
	for _, dev := range r.others {
		if err := dev.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, fmt.Errorf("close %s: %w", dev.Info().Name, err))
		}
	}
	if r.down {
		errs = append(errs, r.setLink(true))
	}
	for len(r.taken) > 0 {
		if err := r.setAddress(r.taken[0], true); err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(errs...)
}
