package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// AgentLab is a lab that reaches the devices of another lab through an agent. A
// verdict that differs from that of the other lab is a defect of the agent. The
// other lab must be in real time.
type AgentLab struct {
	lab    conformance.Lab
	client *agent.Client
	host   *agentHost
	stop   func() error
}

var _ conformance.Lab = (*AgentLab)(nil)

// ThroughAgent starts an agent for the devices of a lab on a loopback address, and
// returns a lab that uses it.
func ThroughAgent(lab conformance.Lab) (*AgentLab, error) {
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &AgentLab{lab: lab, host: &agentHost{devices: make(map[string]verbs.Context)}}
	server := &agent.Server{Key: agent.NewKey(), Host: a.host}
	served := goCase(func() error { return server.Serve(ctx, ln) })
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

// Close ends the agent, and leaves the other lab open.
func (a *AgentLab) Close() error { return errors.Join(a.client.Close(), a.stop()) }

// WithBench implements conformance.Lab.
func (a *AgentLab) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	return a.lab.WithBench(ctx, job, func(b *conformance.Bench) error {
		name := a.host.add(b.Device)
		defer a.host.remove(name)
		dev, err := a.client.Open(name)
		if err != nil {
			return fmt.Errorf("open the device through the agent: %w", err)
		}
		remote := *b
		remote.Device = dev
		err = body(&remote)
		if lost := a.client.Err(); lost != nil {
			return lost // instead of an error that it caused
		}
		if closeErr := dev.Close(); closeErr != nil && !errors.Is(closeErr, verbs.ErrClosed) {
			err = errors.Join(err, fmt.Errorf("close the device through the agent: %w", closeErr))
		}
		return err
	})
}

// agentHost is the agent.Host with the devices of running cases. The other lab owns their links.
type agentHost struct {
	agent.FixedHost
	mu      sync.Mutex
	last    int
	devices map[string]verbs.Context
}

// add adds a device and returns its name.
func (h *agentHost) add(dev verbs.Context) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	name := fmt.Sprintf("device%d", h.last)
	h.devices[name] = dev
	return name
}

func (h *agentHost) remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.devices, name)
}

// Open implements agent.Host.
func (h *agentHost) Open(name string) (verbs.Context, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dev, ok := h.devices[name]; ok {
		return dev, nil
	}
	return nil, fmt.Errorf("device %s: %w", name, verbs.ErrNotFound)
}

// Identity implements agent.Host.
func (h *agentHost) Identity() (agent.Identity, error) { return agent.Identity{}, nil }
