package perflab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/launch"
)

// ScaleMain is the main function of a process that simulates a point: it reads the scaleJob from its
// standard input, and writes the ScalePoint to its standard output.
func ScaleMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	runtime.GOMAXPROCS(1)
	return runPoint(ctx, os.Stdin, os.Stdout)
}

// runPoint reads a scaleJob, simulates it, and writes the ScalePoint.
func runPoint(ctx context.Context, in io.Reader, out io.Writer) error {
	var j scaleJob
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	p, err := j.simulate(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(p)
}

// errOver ends a simulation that has reached a limit.
var errOver = errors.New("a limit is reached")

// simulate simulates the point and measures its cost. A point that reaches a limit on the way says
// which in Over.
func (j *scaleJob) simulate(ctx context.Context) (ScalePoint, error) {
	p := ScalePoint{Size: j.Size}
	curves := scaleCurves()
	i := slices.IndexFunc(curves, func(c scaleCurve) bool { return c.Name == j.Curve })
	if i < 0 {
		return p, fmt.Errorf("no curve %q", j.Curve)
	}
	start, err := usage()
	if err != nil {
		return p, err
	}
	update := func() error {
		now, err := usage()
		p.CPU, p.Memory = now.cpu-start.cpu, now.memory-start.memory
		return err
	}
	p.simulated, err = curves[i].run(j.Size, func() error {
		if err := update(); err != nil {
			return err
		}
		switch {
		case p.CPU > j.Time:
			p.Over = fmt.Sprintf("took more than %s, which were left of --time", cli.Duration(j.Time))
		case p.Memory > j.Memory:
			p.Over = fmt.Sprintf("took more than %s, the --memory", cli.Bytes(j.Memory))
		default:
			return context.Cause(ctx)
		}
		return errOver
	})
	if err != nil && !errors.Is(err, errOver) {
		return p, err
	}
	return p, update()
}

// used is what this process has used.
type used struct {
	cpu    time.Duration
	memory uint64 // the peak of its resident memory
}

// usage returns what this process has used since its start.
func usage() (u used, err error) {
	var ok bool
	if u.cpu, u.memory, ok = process.UsedResources(); !ok {
		return u, fmt.Errorf("CPU time and memory of a process are measured on Linux only: %w", errors.ErrUnsupported)
	}
	return u, nil
}
