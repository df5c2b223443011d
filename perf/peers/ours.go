package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi"
)

// runOurs runs the benchmark on ranks of fabrictest's MPI runtime, over IPv6, with or without
// computing ICRCs, and returns the results of rank 0.
func (f *fabric) runOurs(ctx context.Context, withICRC bool) (turn, error) {
	const joinTimeout = 10 * time.Second // how long our ranks may take to start
	const ipv4 = false
	options, err := json.Marshal(mpi.Options{Collectives: f.Algorithms})
	if err != nil {
		return nil, err
	}
	specs := make([]launch.Spec, 0, len(f.hosts))
	began := time.Now()
	for i, h := range f.hosts {
		nic := &h.NICs[0]
		text, err := json.Marshal(mpihost.Job{
			Ranks: len(f.hosts), PerHost: 1, Rails: 1, Provider: nics.Default, ICRCOffloaded: !withICRC, Seed: 1, Options: options,
			Rank: &mpihost.RankJob{
				NICs: []mpihost.NICJob{{Name: nic.Name, Addr: nic.Addr(ipv4)}}, CPU: f.cpus[i] + 1 /* 0 is any CPU */, StartTime: began,
			},
		})
		if err != nil {
			return nil, err
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: h.NS.Start, Job: text,
			Cmd: launch.Command{Path: "/proc/self/exe", Args: append([]string{roleRank}, f.args...)},
		})
	}
	group, err := launch.Start(ctx, specs, launch.Options{JoinTimeout: joinTimeout, OnEvent: func(e launch.Event) {
		if e.Kind == launch.Printed && e.Stream == launch.Stderr {
			_, _ = os.Stderr.WriteString(cli.Printable(e.Text) + "\n") // there is no other place for the error
		}
	}})
	if err != nil {
		return nil, err
	}
	outcomes, err := group.Wait()
	if err != nil {
		return nil, err
	}
	return parseTurn(outcomes[0].Stdout.Tail, f.measurements())
}
