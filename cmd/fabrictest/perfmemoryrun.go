package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// memoryCommand is what fabrictest starts itself as, to measure one point. A process that
// is new has memory that was never used, and of that only what is touched is there: a
// rank may register a gigabyte and take megabytes. In one that has run a world before,
// all of it would have to be cleared.
const memoryCommand = "memory-point"

// memoryJob is what such a process is told.
type memoryJob struct {
	Run    work.MemoryRun
	Config carrier.Config
	Seed   uint64
}

// measureApart measures a point in a process of its own.
func measureApart(ctx context.Context, j memoryJob) (p work.MemoryPoint, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return p, err
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, self, memoryCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &complaint
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return p, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case err != nil:
		return p, fmt.Errorf("%v: %w: %s", &j.Run, err, strings.TrimSpace(complaint.String()))
	}
	return p, json.Unmarshal(out.Bytes(), &p)
}

// newMemoryPointCommand is that process.
func newMemoryPointCommand() *cobra.Command {
	return &cobra.Command{
		Use: memoryCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var j memoryJob
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&j); err != nil {
				return err
			}
			start := func(n int, o mpi.Options, program func(*mpi.World) error) error {
				_, err := mpihost.InWorld(mpihost.Fabric{Ranks: n, Seed: j.Seed, Stop: cmd.Context().Err}, func(e *transport.Env) error { return mpi.Run(e, o, program) })
				return err
			}
			p, err := j.Run.Measure(start, mpi.Options{Carrier: j.Config})
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(p)
		},
	}
}
