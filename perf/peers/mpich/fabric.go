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

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// fabric is the pair of hosts.
type fabric struct {
	job
	*netns.Fabric
	hosts [2]*netns.Host
	cpus  [2]int
	port  string // of the first host: what it sends is counted there
	args  []string
}

// fabricMain is what the fabric's process does: the job from its standard input.
func fabricMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer stop()
	f := new(fabric)
	if err := json.NewDecoder(os.Stdin).Decode(&f.job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := f.build(); err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it goes with this process
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

// build makes the pair, and decides who runs where.
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
		return errors.New("there is one processor only: two ranks that spin on it measure the scheduler")
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

// round gives each runtime its turns.
func (f *fabric) round(ctx context.Context) (r round, err error) {
	for _, t := range []struct {
		name string
		into *turn
		run  func(context.Context) (string, error)
	}{
		{"MPICH", &r.MPICH, f.mpich},
		{"ours", &r.Ours, func(ctx context.Context) (string, error) { return f.ours(ctx, false) }},
		{"MPICH", &r.Again, f.mpich},
		{"ours without ICRC", &r.NoICRC, func(ctx context.Context) (string, error) { return f.ours(ctx, true) }},
	} {
		if *t.into, err = f.turn(ctx, t.run); err != nil {
			return r, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return r, nil
}

// turn has a runtime measure, and sees to it that its messages crossed the cable.
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
	if sent, least := after.TxBytes-before.TxBytes, streamed(); sent < least {
		return nil, fmt.Errorf("%s has sent %d bytes, and the messages were at least %d: they took another way", f.port, sent, least)
	}
	return parseTurn(text)
}

// streamed is how many bytes the streams of a turn send at least.
func streamed() (n uint64) {
	for _, m := range measurements() {
		kind, size, _ := strings.Cut(m.Name, ":")
		if bytes, err := strconv.Atoi(size); err == nil && kind == stream {
			n += uint64(firstCount * window(bytes) * bytes)
		}
	}
	return n
}

// load is how busy the machine was in the last minute.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
