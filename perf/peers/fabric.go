package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report/peers"
	"github.com/fabrictest/fabrictest/scenarios"
)

// fabric has the hosts, one for each rank.
type fabric struct {
	job
	*netns.Fabric
	hosts []*netns.Host
	cpus  []int    // of the ranks; anyCPU if they are not bound
	port  string   // of the first host, whose sent bytes are counted
	args  []string // of the ranks
}

// anyCPU stands for the CPU of a process that is not bound to one.
const anyCPU = -1

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
	r := result{Run: peers.Run{Load: loadAverage(), Rounds: f.Rounds}}
	names := make([]string, len(f.Peers))
	for i, p := range f.Peers {
		names[i] = p.Peer
		r.Peers = append(r.Peers, peers.Peer{Name: p.Peer, Version: p.Version})
	}
	for i := range f.Rounds {
		figures, err := f.runRound(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		r.Turns = append(r.Turns, figures)
		fmt.Fprintf(os.Stderr, "round %d of %d is done\n", i+1, f.Rounds)
	}
	r.Comparisons = compare(f.measurements(), r.Turns, names)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// build creates the hosts, a pair or else on one switch, and selects the CPU of each rank. The ranks get as arguments the
// minimum time of a measurement in milliseconds, and the names of the measurements.
func (f *fabric) build() error {
	options := topology.Options{Link: topology.Link{MTU: netns.DefaultMTU}}
	t, err := topology.Pair(options)
	if f.Collectives {
		t, err = topology.Star(f.Ranks, options)
	}
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
	for i, h := range t.Hosts {
		f.hosts = append(f.hosts, f.Host(h.Name))
		f.cpus = append(f.cpus, anyCPU)
		if f.Bind {
			f.cpus[i] = all[i%len(all)]
		}
	}
	f.port = f.hosts[0].Name + "/" + f.hosts[0].NICs[0].Name
	f.args = []string{strconv.FormatInt(f.Slice.Milliseconds(), 10)}
	for _, m := range f.measurements() {
		f.args = append(f.args, m.name())
	}
	return nil
}

// runRound runs the turns of a round. In a turn, one runtime or program runs all its measurements. The
// peers have a turn before ours, and another one after it in reverse order: the first peer is next
// to ours both times.
func (f *fabric) runRound(ctx context.Context) (r round, err error) {
	r = round{Ranks: f.Ranks, Before: map[string]turn{}, After: map[string]turn{}}
	for i := len(f.Peers) - 1; i >= 0; i-- {
		if r.Before[f.Peers[i].Peer], err = f.runPeer(ctx, &f.Peers[i]); err != nil {
			return r, err
		}
	}
	const withICRC, withoutICRC = true, false
	if r.Ours, err = f.runTurn(ctx, "ours", f.oursOnPort(), func(ctx context.Context) (turn, error) { return f.runOurs(ctx, withICRC) }); err != nil {
		return r, err
	}
	if r.NoICRC, err = f.runTurn(ctx, "ours without ICRC", f.oursOnPort(), func(ctx context.Context) (turn, error) { return f.runOurs(ctx, withoutICRC) }); err != nil {
		return r, err
	}
	for i := range f.Peers {
		if r.After[f.Peers[i].Peer], err = f.runPeer(ctx, &f.Peers[i]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// runPeer runs a turn of a peer.
func (f *fabric) runPeer(ctx context.Context, p *programs) (turn, error) {
	return f.runTurn(ctx, p.Peer, p.Measurements, func(ctx context.Context) (turn, error) {
		for _, peer := range allPeers() {
			if peer.name == p.Peer {
				return peer.run(ctx, f, p)
			}
		}
		return nil, errors.New("no such peer")
	})
}

// oursOnPort returns the measurements of our ranks whose messages cross the first host's port.
func (f *fabric) oursOnPort() []measurement {
	if f.Cable == scenarios.SharedMemory {
		return nil
	}
	return f.measurements()
}

// runTurn runs a turn of a runtime or program, and checks by the port's counters that the messages
// of some of its measurements crossed the first host's veth pair.
func (f *fabric) runTurn(ctx context.Context, name string, onPort []measurement, run func(context.Context) (turn, error)) (t turn, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	limit := f.turnLimit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no result within %v", limit))
	defer cancel()
	before, err := f.Stats(f.port)
	if err != nil {
		return nil, err
	}
	t, err = run(ctx)
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
	moved := after.TxBytes - before.TxBytes + after.RxBytes - before.RxBytes
	if want := minBytes(onPort); moved < want {
		return nil, fmt.Errorf("%d bytes crossed %s, and the messages have at least %d: they took another path", moved, f.port, want)
	}
	return t, nil
}

// minBytes returns a lower limit of the bytes that the first host sends and receives: each measurement
// has firstCount round trips, windows or operations, but the programs that count messages send only
// firstCount messages.
func minBytes(all []measurement) (n uint64) {
	for _, m := range all {
		n += uint64(firstCount * m.Bytes)
	}
	return n
}

// outputIn runs a command in host i, and returns what it printed to standard output.
func (f *fabric) outputIn(i int, cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := f.hosts[i].NS.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// loadAverage returns the load average of the last minute, 0 if it cannot be read.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var load float64
	_, _ = fmt.Sscan(string(text), &load)
	return load
}

// cpuModel returns the model of the first processor, empty if it cannot be read.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return ""
}
