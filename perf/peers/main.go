// Command peers compares the multi-rank runtime with MPICH, Open MPI, UCX, libfabric and
// iperf3, between the same two network namespaces, which a veth pair joins. It creates and
// removes them, and needs root, or a user who may create user namespaces.
//
//	go run ./perf/peers [-peers mpich,ucx] [-rounds N] [-slice TIME] [-json] [-html FILE]
//	go run ./perf/peers -collectives [-ranks 4,8] [-operations bcast,allreduce] [-algorithms bcast=chain] …
//
// It measures half round trips, bandwidths, and the rate of 64 B messages with 64 in
// flight. The ranks of our runtime, MPICH and Open MPI run the same program, call by call:
// ranks.go over package mpi, and c/ranks.c, compiled by mpicc. ucx_perftest measures
// tagged messages of the same sizes with as many in flight, fi_pingpong tagged half round
// trips, and iperf3 the bandwidth of a TCP connection. A half round trip is the median of
// batches, or the mean of fi_pingpong; a bandwidth is the mean.
//
// In each round, every peer has a turn, then our runtime with ICRC and without (because
// TCP checksums are not computed across a veth pair either), and then every peer in
// reverse order. A ratio compares our result with the mean of the peer's two turns in that
// round. The result is the median over all rounds; the difference of the two turns is the
// noise. There are targets for the ratios to MPICH.
//
// MPICH and Open MPI have one node per rank, to avoid shared memory. All peers use TCP
// over the veth interface. A turn fails if the counters of the interface show that its
// messages took another path. All but iperf3 spin while they wait, and each process is
// bound to a CPU.
//
// With -collectives, it measures allgather, all-to-all, allreduce, reduce-scatter and broadcast
// of our runtime, MPICH and Open MPI instead. Each rank is in a network namespace of its own, and
// all are on one switch. As in the OSU benchmarks, a barrier precedes each operation, and the time
// is that of the slowest rank: the median of its batches' means. The first host's counters show that
// messages crossed the switch.
//
// Ranks that outnumber the processors are bound to them in turn, alike for all runtimes, as a batch
// system would bind them: each processor has the same number of ranks. Without -bind, allreduces of 4
// ranks took MPICH-yielding as long, or up to a third less, and ours as long or up to twice as long. Open
// MPI yields while it waits (mpi_yield_when_idle), and our ranks yield and then sleep. MPICH 4 over UCX
// spins, and has no option to yield: MPIR_CVAR_POLLS_BEFORE_YIELD has no effect, because its
// library does not call sched_yield. So MPICH-yielding is measured, too: MPICH with an epoll_wait
// that yields (c/yield.c). There are targets for the ratios to both.
//
// With -cable shm, our ranks are connected by shared memory, and the peers by veth pairs as before.
//
// With -html, the result is also written as one page with charts.
//
// With the environment variable FABRICTEST_PEERS_PROFILE=DIR, our ranks write CPU profiles
// to that directory.
//
// The command skips peers that are not installed, and prints how to install them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/peers"
	"github.com/fabrictest/fabrictest/scenarios"
)

// The first argument of the child processes.
const (
	roleFabric = "fabric-process" // builds the namespaces and starts all others
	roleRank   = "rank-process"   // one of our ranks
	rolePinned = "bound-process"  // binds itself to a CPU and executes another program
	roleShell  = "shell-process"  // enters the second host and executes a command
)

const (
	// turnOverhead is the time of a turn besides its measurements, and
	// timeoutFactor how many times longer these may take.
	turnOverhead  = time.Minute
	timeoutFactor = 20
	// collectiveTimeout is added to the timeout of a turn of collective operations: ranks that share
	// processors and never yield take some 0.1 s for an operation.
	collectiveTimeout = 10 * time.Minute
	// maxRanks is the largest number of ranks, and so of hosts.
	maxRanks = 64
	// stopTimeout is the time from SIGTERM to SIGKILL of the fabric process.
	stopTimeout = 10 * time.Second
)

// main is the command, or the main function of a child process if the first argument is its role.
func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleFabric:
			exit(fabricMain())
		case roleRank:
			rankMain(os.Args[2:])
			return
		case rolePinned:
			exit(pinnedMain(os.Args[2:]))
		case roleShell:
			exit(shellMain(os.Args[2:]))
		}
	}
	exit(command())
}

// exit prints an error and exits with 1, or with 0 if err is nil.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job is the input of the fabric process.
type job struct {
	Peers       []programs
	Rounds      int
	Slice       time.Duration // minimum time of a measurement
	Ranks       int
	Bind        bool                // each rank to a CPU
	Cable       scenarios.CableKind // of our ranks
	Collectives bool
	Operations  []string     // kinds of collective operations; all if empty
	Algorithms  coll.Choices // of our collective operations
}

// measurements returns the measurements of a job.
func (j *job) measurements() []measurement {
	if j.Collectives {
		return slices.DeleteFunc(collectiveMeasurements(j.Ranks, j.Cable), func(m measurement) bool {
			return len(j.Operations) > 0 && !slices.Contains(j.Operations, m.Kind)
		})
	}
	return pairMeasurements()
}

// turnLimit returns the timeout of a turn.
func (j *job) turnLimit() time.Duration {
	limit := turnOverhead + timeoutFactor*j.Slice*time.Duration(len(j.measurements()))
	if j.Collectives {
		limit += collectiveTimeout
	}
	return limit
}

// isComma reports whether a rune separates the items of a list.
func isComma(r rune) bool { return r == ',' }

// options are what the flags select.
type options struct {
	jobs  []job    // one for each number of ranks
	peers []string // all if empty
	json  bool     // print JSON
	html  string   // file for the page; none if empty
}

// parseFlags parses the flags.
func parseFlags() (o options, err error) {
	j := job{Ranks: 2}
	var names, ranks, operations string
	flag.StringVar(&names, "peers", "", "the peers, separated by commas; all if empty")
	flag.IntVar(&j.Rounds, "rounds", 5, "how often each runtime has its turns")
	flag.DurationVar(&j.Slice, "slice", 200*time.Millisecond, "how long each measurement takes, at least")
	flag.BoolVar(&j.Collectives, "collectives", false, "measure collective operations")
	flag.StringVar(&ranks, "ranks", "4,8", "the numbers of ranks of collective operations, separated by commas")
	flag.StringVar(&operations, "operations", "", "the collective operations, separated by commas; all if empty")
	flag.TextVar(&j.Algorithms, "algorithms", &coll.Choices{}, "our algorithms, where not the default, as `bcast=chain,alltoall=spread`")
	flag.BoolVar(&j.Bind, "bind", true, "bind each process to a CPU, in turn")
	flag.Var(&j.Cable, "cable", "our ranks are connected by a `KIND` of cable: veth, or shm (shared memory)")
	flag.BoolVar(&o.json, "json", false, "print the result, with every figure, as JSON")
	flag.StringVar(&o.html, "html", "", "write the result as a page with charts to this `file`")
	flag.Parse()
	if j.Rounds < 1 || j.Slice <= 0 || j.Slice > time.Minute || flag.NArg() > 0 {
		return o, errors.New("give at least 1 round, a slice of up to 1m0s, and nothing else: see -help")
	}
	o.peers, o.jobs = strings.FieldsFunc(names, isComma), []job{j}
	if j.Collectives {
		o.jobs, err = collectiveJobs(j, ranks, operations)
	}
	return o, err
}

// collectiveJobs returns the job of each number of ranks in a list, for the operations in a list.
func collectiveJobs(j job, ranks, operations string) (jobs []job, err error) {
	j.Operations = strings.FieldsFunc(operations, isComma)
	for _, kind := range j.Operations {
		if !slices.Contains(collectiveKinds, kind) {
			return nil, fmt.Errorf("operation %q is none of %s", kind, strings.Join(collectiveKinds, ", "))
		}
	}
	for _, text := range strings.FieldsFunc(ranks, isComma) {
		if j.Ranks, err = strconv.Atoi(text); err != nil || j.Ranks < 2 || j.Ranks > maxRanks {
			return nil, fmt.Errorf("%q ranks: give 2 to %d", text, maxRanks)
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, errors.New("give a number of ranks")
	}
	return jobs, nil
}

// command parses the flags, runs the measurement and prints its result. It returns an error if a
// target was missed. If no peer is installed, command only prints how to install them.
func command() error {
	o, err := parseFlags()
	if err != nil {
		return err
	}
	if err := netns.Available(); err != nil {
		return fmt.Errorf("all runtimes run in network namespaces: %w", err)
	}
	found, skipped, err := findPeers(o.peers, o.jobs[0].measurements())
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return (&peers.Run{Skipped: skipped}).WriteTable(os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	dir, err := os.MkdirTemp("", "fabrictest-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range found {
		if err := found[i].compile(ctx, dir); err != nil {
			return err
		}
	}
	started := time.Now()
	r, err := measureJobs(ctx, o.jobs, found)
	if err != nil {
		return err
	}
	r.Skipped = skipped
	r.Tool, r.Command, r.Started = report.ToolVersion(), cli.Join(append([]string{"go", "run", "./perf/peers"}, os.Args[1:]...)), started
	r.Machine, r.CPU = report.ThisMachine(), cpuModel()
	if err := errors.Join(r.print(o.json), cli.WriteFile(o.html, r.WriteHTML)); err != nil {
		return err
	}
	if r.Missed() {
		return errors.New("a target was missed")
	}
	return nil
}

// measureJobs runs jobs one after the other, and returns one result of all.
func measureJobs(ctx context.Context, jobs []job, found []programs) (*result, error) {
	all := new(result)
	for i := range jobs {
		jobs[i].Peers = found
		r, err := measureInFabric(ctx, &jobs[i])
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = r
			continue
		}
		all.Comparisons = append(all.Comparisons, r.Comparisons...)
		all.Turns = append(all.Turns, r.Turns...)
	}
	if jobs[0].Collectives {
		all.Summaries = summarize(all.Comparisons, jobs[0].Cable)
	}
	return all, nil
}

// print prints the result to standard output, as a table or as JSON.
func (r *result) print(asJSON bool) error {
	if !asJSON {
		return r.WriteTable(os.Stdout)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// measureInFabric runs the job in a child process in new namespaces, and returns its result.
func measureInFabric(ctx context.Context, j *job) (*result, error) {
	turnsPerRound := 2 + 2*len(j.Peers) // a turn is one run of all measurements
	limit := time.Duration(j.Rounds*turnsPerRound) * j.turnLimit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the measurement did not end within %v", limit))
	defer cancel()
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", roleFabric)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	if err := netns.StartUnshared(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	r := new(result)
	return r, json.Unmarshal(out.Bytes(), r)
}
