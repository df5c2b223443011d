package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
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
	cable, err := f.sharedCable(ipv4)
	if err != nil {
		return nil, err
	}
	defer closeAll(cable)
	specs := make([]launch.Spec, 0, len(f.hosts))
	began := time.Now()
	for i, h := range f.hosts {
		nic := mpihost.NICJob{Name: h.NICs[0].Name, Addr: h.NICs[0].Addr(ipv4)}
		if cable != nil {
			nic.CableFD = launch.FirstFile
		}
		text, err := json.Marshal(mpihost.Job{
			Ranks: len(f.hosts), PerHost: 1, Rails: 1, Provider: nics.Default, ICRCOffloaded: !withICRC, Seed: 1, Options: options,
			Rank: &mpihost.RankJob{
				NICs: []mpihost.NICJob{nic}, CPU: f.cpus[i] + 1 /* 0 is any CPU */, StartTime: began,
			},
		})
		if err != nil {
			return nil, err
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: h.NS.Start, Job: text,
			Cmd: launch.Command{Path: "/proc/self/exe", Args: append([]string{roleRank}, f.args...), Files: cable},
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

// sharedCable returns the file of a new cable in shared memory between all hosts, none if the cables are veth pairs.
func (f *fabric) sharedCable(ipv4 bool) ([]*os.File, error) {
	if f.Cable != scenarios.SharedMemory {
		return nil, nil
	}
	c := shmlink.Config{MTU: netns.DefaultMTU}
	for _, h := range f.hosts {
		c.Ports = append(c.Ports, []netip.Addr{h.NICs[0].Addr(ipv4)})
	}
	file, err := shmlink.Create(c)
	return []*os.File{file}, err
}

// closeAll closes files.
func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
