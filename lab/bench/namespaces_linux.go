package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
)

// Namespaces is a lab in network namespaces and real time.
type Namespaces struct {
	provider *nics.Provider
	opt      NamespaceOptions
	turn     chan struct{} // as many as may run

	mu     sync.Mutex
	free   []*table
	closed bool
}

var _ conformance.Lab = (*Namespaces)(nil)

// InNamespaces returns a lab of devices on sockets. The process must be able to make
// network namespaces: as root, or in a user namespace of its own, where
// netns.StartUnshared starts programs of ordinary users.
//
// A device that crashes in a thread of its own takes the process with it.
func InNamespaces(p *nics.Provider, opt NamespaceOptions) (*Namespaces, error) {
	opt.Parallel, opt.MaxTime = max(opt.Parallel, 1), cmp.Or(opt.MaxTime, defaultMaxRealTime)
	l := &Namespaces{provider: p, opt: opt, turn: make(chan struct{}, opt.Parallel)}
	first, err := newTable(p.Streams) // it shows whether there can be any
	switch {
	case errors.Is(err, unix.EPERM) && netns.Available() == nil:
		return nil, fmt.Errorf("this process may not make network namespaces, but in a user namespace of its own it may: start it by netns.StartUnshared: %w", unix.EPERM)
	case err != nil:
		return nil, fmt.Errorf("a bench in network namespaces: %w", err)
	}
	l.free = append(l.free, first)
	return l, nil
}

// Close takes the namespaces down. No case may run any more.
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

// take returns a table that nobody uses.
func (l *Namespaces) take() (*table, error) {
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
	return newTable(l.provider.Streams)
}

// put returns a table. One on which something is left over is not used again.
func (l *Namespaces) put(t *table, clean bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !clean || l.closed {
		return t.close()
	}
	l.free = append(l.free, t)
	return nil
}

// Try implements conformance.Lab.
func (l *Namespaces) Try(ctx context.Context, job conformance.Job, body func(*conformance.Bench) error) error {
	wish, err := read(l.provider, l.opt.Claims, &job)
	if err != nil {
		return err
	}
	if wish.mtu < leastMTU || wish.mtu > defaultMTU {
		return fmt.Errorf("%w: an MTU of %d: the cables of this bench carry from %d, which IPv6 wants, to %d", conformance.ErrCannot, wish.mtu, leastMTU, defaultMTU)
	}
	if job.Record == nil {
		job.Record = new(conformance.Record)
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t, err := l.take()
	if err != nil {
		return err
	}
	p := &played{table: t, wish: wish, world: newRealWorld()}
	outcome := p.play(ctx, &job, body, l.opt.MaxTime)
	clean, err := p.cleanUp()
	return cmp.Or(outcome, err, l.put(t, clean))
}

// play makes the bench and runs the body on it.
func (p *played) play(ctx context.Context, job *conformance.Job, body func(*conformance.Bench) error, limit time.Duration) error {
	if err := p.table.setMTU(p.wish.mtu); err != nil {
		return err
	}
	b := &conformance.Bench{
		World: p.world, Local: p.wish.local, Peers: p.wish.peers, MTU: p.wish.mtu,
		Rand: caseRand(job.Seed), Record: job.Record, Partner: p.partner, SetLink: p.table.setLink, SetAddress: p.setAddress, SetHandler: p.table.setPath,
	}
	if err := p.open(b, job.Record); err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done := start(func() error { return body(b) })
	select {
	case err := <-done:
		return cmp.Or(err, p.world.leftTasks())
	case err := <-p.world.crash:
		p.left = done
		return err
	case <-ctx.Done():
		p.left = done
		return context.Cause(ctx)
	case <-timer.C:
		p.left = done
		return &conformance.HangError{Waiting: fmt.Sprintf("%v have passed, and %s", limit, p.world.waitsFor())}
	}
}
