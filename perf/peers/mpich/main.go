// Command mpich compares the multi-rank runtime with MPICH: two ranks in two
// network namespaces that a veth pair joins, the same two for both. It creates and
// removes them, and needs root, or a user who may create user namespaces.
//
//	go run -pgo=perf/peers/mpich/ranks.pgo ./perf/peers/mpich [-rounds N] [-slice TIME] [-json]
//
// It measures half round trips of 8 B, 64 B and 4 KiB, the bandwidth of 256 KiB and
// 4 MiB messages, and the rate of 64 B messages with 64 in flight. The ranks of
// both run the same program, call by call: ranks.go over package mpi, and
// c/ranks.c, compiled by mpicc, over MPICH.
//
// Each round measures MPICH, our runtime with ICRC, MPICH again, and our runtime
// without ICRC, because TCP checksums are not computed across a veth pair either. A
// ratio compares our result with the two of MPICH around it, or the one before it.
// The result is the median over all rounds; the difference of the two results of
// MPICH is the noise.
//
// MPICH has one node per rank, to avoid shared memory, and its UCX uses only the
// transport tcp (UCX_TLS) over the veth interface (UCX_NET_DEVICES). A runtime
// fails if the counters of the interface show that messages took another path. Both
// runtimes spin while they wait, and each rank is bound to a CPU.
//
// The profile ranks.pgo makes short messages about 5 % faster. It is created by
//
//	mkdir /tmp/p && go build -trimpath -o /tmp/p/mpich ./perf/peers/mpich
//	FABRICTEST_MPICH_PROFILE=/tmp/p /tmp/p/mpich -rounds 2 -slice 1s
//	go tool pprof -proto /tmp/p/*.prof > perf/peers/mpich/ranks.pgo
//
// If MPICH, its headers or a C compiler are missing, the command prints how to
// install them, and succeeds.
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
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
)

// The first argument of the child processes.
const (
	roleFabric = "fabric-process" // builds the namespaces and starts all others
	roleRank   = "rank-process"   // one of our ranks
	rolePinned = "bound-process"  // binds itself to a CPU and executes another program
)

const (
	// turnOverhead is the time of a turn besides its measurements, and
	// timeoutFactor how many times longer these may take.
	turnOverhead  = 15 * time.Second
	timeoutFactor = 6
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
		}
	}
	exit(command())
}

// exit prints an error and exits with 1, or with 0 if err is nil.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "mpich: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job is the input of the fabric process.
type job struct {
	Tools   tools
	Program string // the compiled ranks of MPICH
	Rounds  int
	Slice   time.Duration // minimum time of a measurement
}

// turnLimit returns the timeout of a turn.
func (j *job) turnLimit() time.Duration {
	return turnOverhead + timeoutFactor*j.Slice*time.Duration(len(measurements()))
}

// command parses the flags, runs the measurement and prints its result. It returns an error if a
// target was missed. If MPICH is not installed, command only prints how to install it.
func command() error {
	j := job{}
	var asJSON bool
	flag.IntVar(&j.Rounds, "rounds", 5, "how often each runtime has its turns")
	flag.DurationVar(&j.Slice, "slice", 200*time.Millisecond, "how long each measurement takes, at least")
	flag.BoolVar(&asJSON, "json", false, "print the result, with every figure, as JSON")
	flag.Parse()
	if j.Rounds < 1 || j.Slice <= 0 || j.Slice > time.Minute || flag.NArg() > 0 {
		return fmt.Errorf("give at least 1 round, a slice of up to 1m0s, and nothing else: see -help")
	}
	if err := netns.Available(); err != nil {
		return fmt.Errorf("both runtimes run in network namespaces: %w", err)
	}
	var missing error
	if j.Tools, missing = findTools(); missing != nil {
		fmt.Printf("skipped: %v\ninstall it with: %s\n", missing, installCommand)
		return nil
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-pgo" }) {
		fmt.Fprintf(os.Stderr, "mpich: our ranks were built without a profile and are slower for it; with one: go run -pgo=%s ./perf/peers/mpich\n", profilePath)
	}
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	dir, err := os.MkdirTemp("", "fabrictest-mpich-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if j.Program, err = j.Tools.compile(ctx, dir); err != nil {
		return err
	}
	r, err := measureInFabric(ctx, &j)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = r.write(os.Stdout)
	}
	if err == nil && r.missed() {
		err = errors.New("a target was missed")
	}
	return err
}

// profilePath is the PGO profile. It is not named default.pgo, to avoid a second
// build of everything in normal builds.
const profilePath = "perf/peers/mpich/ranks.pgo"

// measureInFabric runs the job in a child process in new namespaces, and returns its result.
func measureInFabric(ctx context.Context, j *job) (*result, error) {
	const turnsPerRound = 4 // see runRound: in a turn, one runtime runs all measurements
	limit := time.Duration(j.Rounds) * turnsPerRound * j.turnLimit()
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
