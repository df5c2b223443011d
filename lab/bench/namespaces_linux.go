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
	sem      chan struct{} // limits concurrent cases

	mu     sync.Mutex
	free   []*benchNetwork
	closed bool
}

var _ conformance.Lab = (*Namespaces)(nil)

// InNamespaces returns a lab of devices on sockets. The process must be able to
// create network namespaces: as root, or in a process of netns.StartUnshared.
//
// A device that panics in another goroutine ends the process.
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

// takeNetwork returns an unused network.
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

// putNetwork returns a network. One that is not clean is closed.
func (l *Namespaces) putNetwork(t *benchNetwork, clean bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !clean || l.closed {
		return t.close()
	}
	l.free = append(l.free, t)
	return nil
}

// WithBench implements conformance.Lab.
func (l *Namespaces) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	cfg, err := newBenchConfig(l.provider, l.opt.Restrictions, &job)
	if err != nil {
		return err
	}
	if cfg.mtu < minMTU || cfg.mtu > defaultMTU {
		return fmt.Errorf("%w: an MTU of %d: the links of this bench have %d, the minimum of IPv6, to %d", conformance.ErrBenchCannot, cfg.mtu, minMTU, defaultMTU)
	}
	if job.Record == nil {
		job.Record = new(conformance.Record)
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
	p := newNetnsCase(t, cfg)
	outcome := p.runCase(ctx, &job, body, l.opt.MaxTime)
	clean, err := p.cleanUp()
	return cmp.Or(outcome, err, l.putNetwork(t, clean))
}

// runCase creates the bench and runs the body on it.
func (p *netnsCase) runCase(ctx context.Context, job *conformance.BenchSpec, body func(*conformance.Bench) error, limit time.Duration) error {
	if err := p.net.setMTU(p.cfg.mtu); err != nil {
		return err
	}
	b := &conformance.Bench{
		Runtime: p.world, Local: p.cfg.local, Peers: p.cfg.peers, MTU: p.cfg.mtu,
		Rand: newCaseRand(job.Seed), Record: job.Record, Partner: p.openPartner, SetLink: p.setLink, SetAddress: p.setAddress, SetPath: p.net.setPath,
	}
	if err := p.open(b, job.Record); err != nil {
		return err
	}
	return p.world.runBody(ctx, func() error { return body(b) }, hangCheck{interval: limit}, nil)
}
