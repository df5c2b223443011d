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

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/perf"
)

// What the command starts itself as.
const (
	roleFabric = "fabric-process" // the pair of namespaces, and all that runs in it
	roleRank   = "rank-process"   // one of our ranks
	roleBound  = "bound-process"  // becomes another program, on one processor
)

const (
	// perTurn is what a turn may take besides its measurements, and slack how many
	// times longer these may take than they should.
	perTurn = 15 * time.Second
	slack   = 6
	// goodbye is what the fabric has to end once it is asked to.
	goodbye = 10 * time.Second
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleFabric:
			exit(fabricMain())
		case roleRank:
			rankMain(os.Args[2:])
			return
		case roleBound:
			exit(boundMain(os.Args[2:]))
		}
	}
	exit(command())
}

// errMissed is a run that has told all, and in which a target was missed.
var errMissed = errors.New("a target was missed")

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "mpich: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job is what the fabric's process is told.
type job struct {
	Tools   tools
	Program string // the ranks of MPICH, compiled
	Rounds  int
	Slice   time.Duration
}

// limit is when a turn counts as hung.
func (j *job) limit() time.Duration {
	return perTurn + slack*j.Slice*time.Duration(len(measurements()))
}

// command is what the command does.
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
		fmt.Printf("skipped: %v\ninstall it with: %s\n", missing, install)
		return nil
	}
	if !profiled() {
		fmt.Fprintf(os.Stderr, "mpich: our ranks were built without a profile of themselves, which makes them quicker: go run -pgo=%s ./perf/peers/mpich\n", profilePath)
	}
	ctx, stop := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer stop()
	dir, err := os.MkdirTemp("", "fabrictest-mpich-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if j.Program, err = j.Tools.compile(ctx, dir); err != nil {
		return err
	}
	r, err := inFabric(ctx, &j)
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
	if err == nil && r.worst() == perf.Missed {
		err = errMissed
	}
	return err
}

// profilePath has what ranks do most. It is not called default.pgo, so that only who measures
// builds everything a second time.
const profilePath = "perf/peers/mpich/ranks.pgo"

// profiled reports whether this program was built with a profile.
func profiled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-pgo" })
}

// inFabric has a process in an enclosure do all that is measured: whatever becomes of
// it or of this process, nothing stays behind.
func inFabric(ctx context.Context, j *job) (*result, error) {
	const turns = 4
	most := time.Duration(j.Rounds) * turns * j.limit()
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the measurement did not end within %v", most))
	defer cancel()
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", roleFabric)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = goodbye
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
