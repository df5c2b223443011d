package mpirun

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// reportFD is the descriptor for reports in the program: the first after the launcher's.
const reportFD = 4

// InSimulation starts the program once. That process runs all ranks in a simulation, and writes
// their reports to the pipe that is its file descriptor reportFD.
func InSimulation(ctx context.Context, c Config) (Result, error) {
	var result Result
	var started bool
	code, err := c.simulate(ctx, c.forwardOutput, func(reports io.Reader) (err error) {
		result.Reports, started, err = readReports(reports, c.Ranks)
		return err
	})
	result.Code = code
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case code != 0:
		return result, nil // the program printed the reason
	case err == nil && !started:
		return Result{}, fmt.Errorf("%s has ended: %s", c.Args[0], notARank)
	}
	return result, err
}

// simulate starts the program with its job, calls onOutput for each line of its output, and read with
// its reports. It returns the exit code and the error of read.
func (c *Config) simulate(ctx context.Context, onOutput func(*launch.Event), read func(io.Reader) error) (code int, err error) {
	if err := c.setDefaults(); err != nil {
		return 0, err
	}
	reportsReader, reportsWriter, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer reportsReader.Close()
	defer reportsWriter.Close()
	c.ReportFD = reportFD
	job, err := json.Marshal(c.Job)
	if err != nil {
		return 0, err
	}
	spec := launch.Spec{Start: withStdin((*exec.Cmd).Start), Cmd: launch.Command{
		Path: c.Args[0], Args: c.Args[1:], Files: []*os.File{reportsWriter}, Env: append(os.Environ(), mpihost.WorldVar+"="+string(job)),
	}}
	group, err := launch.Start(ctx, []launch.Spec{spec}, launch.Options{
		Join:     launch.JoinOptional, // the process runs all ranks, and need not connect to the launcher
		LogLimit: noLimit,
		OnEvent: func(e launch.Event) {
			if e.Kind == launch.Printed {
				onOutput(&e)
			}
		},
	})
	if err != nil {
		return 0, err
	}
	reportsWriter.Close() // the program has the only open copy: its exit ends the reports
	err = read(reportsReader)
	outcomes, _ := group.Wait() // the outcome has the error
	return exitStatus(outcomes, os.Stderr), err
}

// noLimit is for output that is forwarded and not kept.
const noLimit = 1 << 62

// withStdin returns a function that starts a process as start does, with the standard input of
// this process. A terminal is not passed on: a background process group must not read from it.
func withStdin(start func(*exec.Cmd) error) func(*exec.Cmd) error {
	if start == nil {
		start = (*exec.Cmd).Start
	}
	return func(cmd *exec.Cmd) error {
		if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
			cmd.Stdin = os.Stdin
		}
		return start(cmd)
	}
}

// plan returns the plan of the fabric in namespaces: two hosts back to back, or more hosts around a
// switch. A NIC has an address for each rank of its host. The plan is made from a scenario, which
// must have a workload; the workload is not run.
func (c *Config) plan() (*lab.Plan, error) {
	hosts := max(2, (c.Ranks+c.PerHost-1)/c.PerHost)
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "mpirun", Title: "Ranks", Seed: c.Seed, Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: scenarios.Fabric{Kind: scenarios.Star, Hosts: hosts, Rails: c.Rails, Cable: c.Cable, Link: scenarios.Link{MTU: scenarios.Bytes(cmp.Or(c.MTU, netns.DefaultMTU))}},
	}
	if hosts == 2 {
		s.Fabric.Kind = scenarios.Pair
	}
	if c.LossPPM > 0 {
		s.Impair = []scenarios.Impairment{{Loss: scenarios.Percent(c.LossPPM)}} // Percent counts in ppm
	}
	p, err := lab.NewPlan(s, lab.Options{Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	// Each rank of a host has its own address, because RoCE and datagram-iWARP have a fixed UDP
	// port. The first rank has the NIC's address.
	for _, host := range p.Topology.Hosts {
		for k := range host.NICs {
			nic := &host.NICs[k]
			for slot := 1; slot < c.PerHost; slot++ {
				nic.Addrs = append(nic.Addrs, netip.PrefixFrom(rankAddr(nic, slot), nic.Addrs[0].Bits()))
			}
		}
	}
	return p, nil
}

// rankAddr returns the address of a rank on a NIC: the IPv6 address of the NIC, with
// slot, the index of the rank on its host, in bytes 12 and 13, which are 0 in addresses of NICs.
func rankAddr(nic *topology.NIC, slot int) netip.Addr {
	const ipv4 = false
	b := nic.Addr(ipv4).As16()
	b[12], b[13] = byte(slot>>8), byte(slot)
	return netip.AddrFrom16(b)
}
