package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// agentLab uses the devices of another lab, in real time, through an agent. A verdict that differs
// from that of the other lab is a defect of the agent.
type agentLab struct {
	lab    conformance.Lab
	client *agent.Client
	host   *agentHost
	stop   func() error
}

var _ conformance.Lab = (*agentLab)(nil)

// throughAgent starts an agent for the devices of a lab, and returns a lab that uses it.
func throughAgent(lab conformance.Lab) (*agentLab, error) {
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &agentLab{lab: lab, host: &agentHost{devices: make(map[string]verbs.Context)}}
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
func (a *agentLab) Close() error { return errors.Join(a.client.Close(), a.stop()) }

// WithBench implements conformance.Lab.
func (a *agentLab) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
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

var agentAll = flag.Bool("agent-all", false, "run all cases through an agent and with slow verb calls, not a part of them")

// loopbackLab uses the devices of another lab through an agent in the goroutines of the case, as a
// simulation requires.
type loopbackLab struct{ conformance.Lab }

func (l loopbackLab) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	return l.Lab.WithBench(ctx, job, func(b *conformance.Bench) error {
		remote := *b
		var err error
		if remote.Device, err = agent.Loopback(b.Device); err != nil {
			return fmt.Errorf("the device through an agent: %w", err)
		}
		return body(&remote)
	})
}

// sampleCases returns about one of n cases for a protocol, none of them slow. With -agent-all it
// returns all cases, with -short fewer.
func sampleCases(p conformance.Protocol, n uint32) (sample []*conformance.Case) {
	if testing.Short() {
		n *= 3
	}
	for _, s := range judge.SuitesOf(p) {
		for i := range s.Cases {
			h := fnv.New32a()
			h.Write([]byte(s.Cases[i].ID))
			if *agentAll || h.Sum32()%n == 1 && !slices.Contains(s.Cases[i].Labels, conformance.Slow) {
				sample = append(sample, &s.Cases[i])
			}
		}
	}
	return sample
}

// compare fails the test if a case has different verdicts in both labs, in each of the retries too:
// in real time, a busy machine changes verdicts.
func compare(t *testing.T, cases []*conformance.Case, direct, remote conformance.Lab, workers, retries int) {
	t.Helper()
	var (
		results [2][]conformance.Result
		took    [2]time.Duration
	)
	var opt conformance.Options
	if !*agentAll {
		opt.Schedules = 5 // as the specs of conformance/judge: the orders of events are not the agent's
	}
	for i, l := range []conformance.Lab{direct, remote} {
		began := time.Now()
		r := &conformance.Runner{Lab: l, Workers: workers, Options: opt}
		var err error
		if results[i], err = r.Run(t.Context(), cases); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	passed := 0
	for i, n := range results[0] {
		f := results[1][i]
		for k := 0; k < retries && n.Verdict != f.Verdict; k++ {
			n, f = conformance.Judge(t.Context(), direct, n.Case, opt), conformance.Judge(t.Context(), remote, n.Case, opt)
		}
		if n.Verdict != f.Verdict {
			t.Errorf("%s: %s without an agent (%v), %s with one (%v)", n.Case.ID, n.Verdict, n.Err, f.Verdict, f.Err)
		}
		if f.Verdict == conformance.VerdictPass {
			passed++
		}
	}
	if passed == 0 {
		t.Error("no case passes")
	}
	t.Logf("%d cases, %d pass: %v without an agent, %v with one", len(cases), passed, took[0].Round(time.Millisecond), took[1].Round(time.Millisecond))
}

func TestAgentInSimulation(t *testing.T) {
	for _, p := range nics.All() {
		t.Run(p.Name, func(t *testing.T) {
			direct := InSimulation(p, SimOptions{})
			compare(t, sampleCases(p.Protocol, 20), direct, loopbackLab{direct}, 2, 0)
		})
	}
}
