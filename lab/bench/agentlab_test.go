package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// agentLab is a lab that reaches the devices of another lab through an agent. A
// verdict that differs from that of the other lab is a defect of the agent. The
// other lab must be in real time.
type agentLab struct {
	lab    conformance.Lab
	client *agent.Client
	host   *agentHost
	stop   func() error
}

var _ conformance.Lab = (*agentLab)(nil)

// throughAgent starts an agent for the devices of a lab on a loopback address, and
// returns a lab that uses it.
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

var agentAll = flag.Bool("agent-all", false, "compare the verdicts on all cases with and without an agent, not on a part of them")

// joinedLab has the devices of another lab behind an agent that works in the case's own
// goroutines, as it must in a simulated world.
type joinedLab struct{ conformance.Lab }

func (l joinedLab) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	return l.Lab.WithBench(ctx, job, func(b *conformance.Bench) error {
		far := *b
		var err error
		if far.Device, err = agent.Loopback(b.Device); err != nil {
			return fmt.Errorf("the device through an agent: %w", err)
		}
		return body(&far)
	})
}

// someCases are one of so many of the cases that devices of a protocol are judged by; all
// if the flag says so, and fewer where time is short.
func someCases(p conformance.Protocol, of uint32) (some []*conformance.Case) {
	if testing.Short() {
		of *= 3
	}
	for _, s := range judge.SuitesOf(p) {
		for i := range s.Cases {
			h := fnv.New32a()
			h.Write([]byte(s.Cases[i].ID))
			if *agentAll || h.Sum32()%of == 1 {
				some = append(some, &s.Cases[i])
			}
		}
	}
	return some
}

// compare fails the test where a case has another verdict in the second lab than in the
// first, also when it is tried again so often: in real time, a busy machine changes
// verdicts too.
func compare(t *testing.T, cases []*conformance.Case, near, far conformance.Lab, workers, again int) {
	t.Helper()
	var (
		results [2][]conformance.Result
		took    [2]time.Duration
	)
	for i, l := range []conformance.Lab{near, far} {
		began := time.Now()
		r := &conformance.Runner{Lab: l, Workers: workers}
		var err error
		if results[i], err = r.Run(t.Context(), cases); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	passed := 0
	for i, n := range results[0] {
		f := results[1][i]
		for k := 0; k < again && n.Verdict != f.Verdict; k++ {
			n, f = conformance.Judge(t.Context(), near, n.Case, conformance.Options{}), conformance.Judge(t.Context(), far, n.Case, conformance.Options{})
		}
		if n.Verdict != f.Verdict {
			t.Errorf("%s: %s without an agent (%v), %s with one (%v)", n.Case.ID, n.Verdict, n.Err, f.Verdict, f.Err)
		}
		if f.Verdict == conformance.VerdictPass {
			passed++
		}
	}
	if passed == 0 {
		t.Error("not a case passes")
	}
	t.Logf("%d cases, %d pass: %v without an agent, %v with one", len(cases), passed, took[0].Round(time.Millisecond), took[1].Round(time.Millisecond))
}

func TestAgentInSimulation(t *testing.T) {
	for _, p := range nics.All() {
		t.Run(p.Name, func(t *testing.T) {
			near := InSimulation(p, SimOptions{})
			compare(t, someCases(p.Protocol, 20), near, joinedLab{near}, 2, 0)
		})
	}
}
