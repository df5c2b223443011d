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

	"github.com/fabrictest/fabrictest/internal/process"
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
	port  string   // of the first host, whose sent bytes are counted
	args  []string // of the ranks
}

// fabricMain is the main function of the process that builds the fabric, in its own namespaces. It
// reads a job as JSON from standard input, runs it, and writes the result to standard output.
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
	r := result{MPICH: f.Tools.Version, Load: loadAverage()}
	for i := range f.Rounds {
		figures, err := f.runRound(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		r.Rounds = append(r.Rounds, figures)
		fmt.Fprintf(os.Stderr, "round %d of %d is done\n", i+1, f.Rounds)
	}
	r.Comparisons = compare(r.Rounds)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// build creates the pair of hosts and selects the CPU of each rank. The ranks get as arguments the
// minimum time of a measurement in milliseconds, and the names of the measurements.
func (f *fabric) build() error {
	t, err := topology.Pair(topology.Options{Link: topology.Link{MTU: netns.DefaultMTU}})
	if err != nil {
		return err
	}
	if f.Fabric, err = netns.Build(t, netns.Options{}); err != nil {
		return err
	}
	all, err := process.UsableCPUs()
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

// runRound runs the four turns of a round. In a turn, one runtime runs all measurements. The two
// turns of MPICH show the noise.
func (f *fabric) runRound(ctx context.Context) (r round, err error) {
	const withICRC, withoutICRC = true, false
	for _, t := range []struct {
		name string
		into *turn
		run  func(context.Context) (string, error)
	}{
		{"MPICH", &r.MPICH, f.runMPICH},
		{"ours", &r.Ours, func(ctx context.Context) (string, error) { return f.runOurs(ctx, withICRC) }},
		{"MPICH", &r.MPICHAgain, f.runMPICH},
		{"ours without ICRC", &r.NoICRC, func(ctx context.Context) (string, error) { return f.runOurs(ctx, withoutICRC) }},
	} {
		if *t.into, err = f.runTurn(ctx, t.run); err != nil {
			return r, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return r, nil
}

// runTurn measures one runtime: run starts its ranks and returns the output of rank 0. runTurn
// checks by the port's counters that the messages crossed the veth pair.
func (f *fabric) runTurn(ctx context.Context, run func(context.Context) (string, error)) (turn, error) {
	limit := f.turnLimit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the ranks did not end within %v", limit))
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
	if sent, want := after.TxBytes-before.TxBytes, minStreamedBytes(); sent < want {
		return nil, fmt.Errorf("%s has sent %d bytes, and the messages have at least %d: they took another path", f.port, sent, want)
	}
	return parseTurn(text)
}

// minStreamedBytes returns a lower limit of the bytes that all stream measurements of a turn send:
// each begins with firstCount windows of messages.
func minStreamedBytes() (n uint64) {
	for _, m := range measurements() {
		kind, size, _ := strings.Cut(m.Name, ":")
		if bytes, err := strconv.Atoi(size); err == nil && kind == stream {
			n += uint64(firstCount * window(bytes) * bytes)
		}
	}
	return n
}

// loadAverage returns the load average of the last minute, 0 if it cannot be read.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var load float64
	_, _ = fmt.Sscan(string(text), &load)
	return load
}
