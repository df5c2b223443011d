package mpirun

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// MemoryCommand is the first argument of a process that measures the memory of one point.
// Its program must call MemoryMain. In a new process the kernel allocates only pages that
// are touched, so a rank may register a gigabyte and use megabytes; a process that has
// run a world before would have to clear all of it.
const MemoryCommand = "memory-point"

// MemoryJob is one point to measure.
type MemoryJob struct {
	Run    work.MemoryRun
	Config carrier.Config
	Seed   uint64
}

// MeasureMemory measures the memory of the run in j. A new process of this program, which has run
// no other simulation, does the run in MemoryMain.
func MeasureMemory(ctx context.Context, j MemoryJob) (p ranks.Point, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return p, err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, self, MemoryCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &errs
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return p, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case err != nil:
		return p, fmt.Errorf("%v: %w: %s", &j.Run, err, strings.TrimSpace(errs.String()))
	}
	return p, json.Unmarshal(out.Bytes(), &p)
}

// MemoryMain reads a MemoryJob from in as JSON, does its run in a simulation, and writes the
// measured ranks.Point to out as JSON.
func MemoryMain(ctx context.Context, in io.Reader, out io.Writer) error {
	var j MemoryJob
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	start := func(n int, o mpi.Options, program func(*mpi.World) error) error {
		_, err := mpihost.InWorld(mpihost.Fabric{Ranks: n, Seed: j.Seed, Stop: ctx.Err}, func(e *transport.Env) error { return mpi.Run(e, o, program) })
		return err
	}
	p, err := j.Run.Measure(start, mpi.Options{Carrier: j.Config})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(p)
}
