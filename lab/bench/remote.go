package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Agency is a lab whose devices are those of another lab, reached through an agent over
// a connection: what a case finds out on it that it does not find out on the other, is
// the agent's fault. The other lab's time must be real.
type Agency struct {
	lab    conformance.Lab
	client *agent.Client
	host   *agencyHost
	stop   func() error
}

var _ conformance.Lab = (*Agency)(nil)

// ThroughAgent starts an agent for the devices of a lab, on a loopback address of this
// process, and returns the lab that uses it.
func ThroughAgent(lab conformance.Lab) (*Agency, error) {
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &Agency{lab: lab, host: &agencyHost{devices: make(map[string]verbs.Context)}}
	server := &agent.Server{Key: agent.NewKey(), Host: a.host}
	served := start(func() error { return server.Serve(ctx, ln) })
	a.stop = func() error {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	if a.client, err = agent.Dial(ctx, ln.Addr().String(), server.Key); err != nil {
		return nil, errors.Join(err, a.stop())
	}
	return a, nil
}

// Close ends the agent. The other lab stays as it is.
func (a *Agency) Close() error { return errors.Join(a.client.Close(), a.stop()) }

// Try implements conformance.Lab.
func (a *Agency) Try(ctx context.Context, job conformance.Job, body func(*conformance.Bench) error) error {
	return a.lab.Try(ctx, job, func(b *conformance.Bench) error {
		name := a.host.lend(b.Device)
		defer a.host.takeBack(name)
		dev, err := a.client.Open(name)
		if err != nil {
			return fmt.Errorf("open the device through the agent: %w", err)
		}
		far := *b
		far.Device = dev
		err = body(&far)
		if lost := a.client.Err(); lost != nil {
			return lost // whatever the case took that for
		}
		if closing := dev.Close(); closing != nil && !errors.Is(closing, verbs.ErrClosed) {
			err = errors.Join(err, fmt.Errorf("close the device through the agent: %w", closing))
		}
		return err
	})
}

// agencyHost has the devices of the cases that run.
type agencyHost struct {
	mu      sync.Mutex
	last    int
	devices map[string]verbs.Context
}

// lend makes a device known, and returns what it is called.
func (h *agencyHost) lend(dev verbs.Context) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	name := fmt.Sprintf("device%d", h.last)
	h.devices[name] = dev
	return name
}

func (h *agencyHost) takeBack(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.devices, name)
}

// Open implements agent.Host.
func (h *agencyHost) Open(name string) (verbs.Context, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dev, ok := h.devices[name]; ok {
		return dev, nil
	}
	return nil, fmt.Errorf("device %s: %w", name, verbs.ErrNotFound)
}

// Identity implements agent.Host.
func (h *agencyHost) Identity() (agent.Identity, error) { return agent.Identity{}, nil }

// SetLink implements agent.Host. The cable is the other lab's.
func (h *agencyHost) SetLink(string, bool) error { return agent.ErrCannot }

// SetAddress implements agent.Host.
func (h *agencyHost) SetAddress(string, netip.Prefix, bool) error { return agent.ErrCannot }

// Restart implements agent.Host.
func (h *agencyHost) Restart(string) error { return agent.ErrCannot }
