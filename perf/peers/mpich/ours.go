package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
)

// joinTimeout is how long our ranks may take to start.
const joinTimeout = 10 * time.Second

// runOurs runs the benchmark on ranks of this runtime, and returns the output of rank 0.
func (f *fabric) runOurs(ctx context.Context, noICRC bool) (string, error) {
	specs := make([]launch.Spec, 0, len(f.hosts))
	began := time.Now()
	for i, h := range f.hosts {
		nic := &h.NICs[0]
		text, err := json.Marshal(mpihost.Job{
			Ranks: len(f.hosts), PerHost: 1, Rails: 1, Provider: nics.Default, ICRCOffloaded: noICRC, Seed: 1,
			Rank: &mpihost.RankJob{
				NICs: []mpihost.NICJob{{Name: nic.Name, Addr: nic.Addr(false)}}, CPU: f.cpus[i] + 1, StartTime: began,
			},
		})
		if err != nil {
			return "", err
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: h.NS.Start, Job: text,
			Cmd: launch.Command{Path: "/proc/self/exe", Args: append([]string{roleRank}, f.args...)},
		})
	}
	group, err := launch.Start(ctx, specs, launch.Options{JoinTimeout: joinTimeout, OnEvent: func(e launch.Event) {
		if e.Kind == launch.Printed && e.Stream == launch.Stderr {
			_, _ = os.Stderr.WriteString(textfmt.Printable(e.Text) + "\n") // there is no other place for the error
		}
	}})
	if err != nil {
		return "", err
	}
	outcomes, err := group.Wait()
	if err != nil {
		return "", err
	}
	return outcomes[0].Stdout.Tail, nil
}
