package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// fabric is the pair of hosts.
type fabric struct {
	job
	*netns.Fabric
	hosts [2]*netns.Host
	cpus  [2]int
	port  string // of the first host, whose sent bytes are counted
	args  []string
}

// fabricMain is the main function of the fabric process. Its job is on its standard
// input.
func fabricMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	f := new(fabric)
	if err := json.NewDecoder(os.Stdin).Decode(&f.job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := f.build(); err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // removed when this process exits
	r := result{MPICH: f.Tools.Version, Load: load()}
	for i := range f.Rounds {
		one, err := f.round(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		r.Rounds = append(r.Rounds, one)
		fmt.Fprintf(os.Stderr, "round %d of %d is done\n", i+1, f.Rounds)
	}
	r.Comparisons = compare(r.Rounds)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// build creates the pair of hosts and selects their CPUs.
func (f *fabric) build() error {
	t, err := topology.Pair(topology.Options{Link: topology.Link{MTU: netns.DefaultMTU}})
	if err != nil {
		return err
	}
	if f.Fabric, err = netns.Build(t, netns.Options{}); err != nil {
		return err
	}
	all, err := mpihost.CPUs()
	if err != nil {
		return err
	}
	if len(all) < 2 {
		return errors.New("only one CPU: two spinning ranks would measure the scheduler")
	}
	for i := range f.hosts {
		f.hosts[i], f.cpus[i] = f.Host(t.Hosts[i].Name), all[i]
	}
	f.port = f.hosts[0].Name + "/" + f.hosts[0].NICs[0].Name
	f.args = []string{strconv.FormatInt(f.Slice.Milliseconds(), 10)}
	for _, m := range measurements() {
		f.args = append(f.args, m.Name)
	}
	return nil
}

// round runs the turns of both runtimes.
func (f *fabric) round(ctx context.Context) (r round, err error) {
	for _, t := range []struct {
		name string
		into *turn
		run  func(context.Context) (string, error)
	}{
		{"MPICH", &r.MPICH, f.runMPICH},
		{"ours", &r.Ours, func(ctx context.Context) (string, error) { return f.runOurs(ctx, false) }},
		{"MPICH", &r.Again, f.runMPICH},
		{"ours without ICRC", &r.NoICRC, func(ctx context.Context) (string, error) { return f.runOurs(ctx, true) }},
	} {
		if *t.into, err = f.turn(ctx, t.run); err != nil {
			return r, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return r, nil
}

// turn runs one runtime, and checks that its messages crossed the cable.
func (f *fabric) turn(ctx context.Context, run func(context.Context) (string, error)) (turn, error) {
	limit := f.limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within %v", limit))
	defer cancel()
	before, err := f.Stats(f.port)
	if err != nil {
		return nil, err
	}
	text, err := run(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	after, err := f.Stats(f.port)
	if err != nil {
		return nil, err
	}
	if sent, least := after.TxBytes-before.TxBytes, minStreamedBytes(); sent < least {
		return nil, fmt.Errorf("%s has sent %d bytes, and the messages have at least %d: they took another path", f.port, sent, least)
	}
	return parseTurn(text)
}

// minStreamedBytes returns the minimum bytes that the streams of a turn send.
func minStreamedBytes() (n uint64) {
	for _, m := range measurements() {
		kind, size, _ := strings.Cut(m.Name, ":")
		if bytes, err := strconv.Atoi(size); err == nil && kind == stream {
			n += uint64(firstCount * window(bytes) * bytes)
		}
	}
	return n
}

// load returns the load average of the last minute.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
