// Package mpirun launches ranks of the multi-rank runtime: one process for each
// rank in the hosts of a fabric in network namespaces, or on RDMA devices of this
// machine or of several ones, or one process with all ranks of a simulation. It forwards their output
// and returns how they ended.
//
// The program reads its job with package mpihost. A child process in new namespaces
// builds the fabric: a program that uses this package must call ProcessMain if its
// first argument is ProcessCommand, and ProxyMain if it is ProxyCommand.
package mpirun

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// ProcessCommand is the first argument of the process that builds the fabric.
const ProcessCommand = "mpi-process"

// Config is the configuration of a launch.
type Config struct {
	mpihost.Job
	// Args are the path of the program and its arguments.
	Args []string `json:"args"`
	// Devices are the names of the kernel's devices that ranks use instead of emulated NICs, one for
	// each rail.
	Devices []string `json:"devices,omitempty"`
	// NetDevs are network interfaces of Hosts for emulated NICs on UDP or TCP sockets, one for each
	// rail, instead of Devices.
	NetDevs []string `json:"netdevs,omitempty"`
	// Hosts are the hosts of ranks, which SetHosts sets; empty for this machine.
	Hosts  []Host      `json:"hosts,omitempty"`
	Remote RemoteStart `json:"remote,omitzero"`
	// Cable is what connects the hosts in real time.
	Cable scenarios.CableKind `json:"cable,omitempty"`
	// Label prints the rank before each output line, in namespaces.
	Label bool `json:"label,omitempty"`
	// Bind binds each rank to one CPU, round-robin, in namespaces.
	Bind bool `json:"bind,omitempty"`
	// KeepGoing lets other ranks continue when one fails, as they always do in simulation.
	KeepGoing bool `json:"keep_going,omitempty"`
}

// setDefaults sets PerHost and Rails to 1 if they are 0, and validates the configuration. Each of
// Devices and of NetDevs is a rail.
func (c *Config) setDefaults() error {
	c.PerHost, c.Rails = cmp.Or(c.PerHost, 1), cmp.Or(len(c.Devices), len(c.NetDevs), c.Rails, 1)
	if len(c.Args) == 0 {
		return errors.New("no program to run")
	}
	return c.Check()
}

// Result is the result of a launch.
type Result struct {
	// Code is the exit code of the first rank that failed by itself, or else of
	// a rank that the launcher ended with the group, or else 0.
	Code int
	// Reports are the reports of the ranks; nil for ranks without one.
	Reports []json.RawMessage
}

// readReports reads the reports of ranks until the end of file, and returns them by
// rank. started is true if a simulation has reported its start.
func readReports(from io.Reader, ranks int) (all []json.RawMessage, started bool, err error) {
	all = make([]json.RawMessage, ranks)
	for in := json.NewDecoder(from); ; {
		var r mpihost.Report
		switch err := in.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, started, nil
		case err != nil:
			return all, started, fmt.Errorf("reports of ranks: %w", err)
		case r.Rank == mpihost.ReportStarted:
			started = true
		case r.Rank < 0 || r.Rank >= ranks:
			return all, started, fmt.Errorf("a report of rank %d, but there are only %d ranks", r.Rank, ranks)
		default:
			all[r.Rank] = r.Text
		}
	}
}

// notARank is the error text for a program that did not join.
const notARank = "it did not join the job: it must call mpi.Main, and import lab/mpihost"

// exitStatus returns the exit code of a launch: that of the first rank that failed by itself, else
// that of a rank that the launcher ended with the group, else 0. It prints the error of each failed
// rank to w. A rank that exits with 0 without having called mpi.Main, which joins the job, has
// failed too.
func exitStatus(outcomes []launch.Outcome, w io.Writer) (code int) {
	return launch.ExitStatus(outcomes, func(o *launch.Outcome) {
		switch {
		case o.Host == "" && o.State == launch.Exited: // a simulation, which has no host, has printed its error
		case !o.Joined && o.State == launch.Exited && o.ExitCode == 0:
			fmt.Fprintf(w, "fabrictest: %s ended: %s\n", rankName(o), notARank)
		default:
			fmt.Fprintf(w, "fabrictest: %s %s: %s\n", rankName(o), o.State, cli.Printable(o.Error))
		}
	})
}

// rankName names the process of an outcome in messages: a rank, or the process that simulates all
// ranks, which has no host.
func rankName(o *launch.Outcome) string {
	if o.Host == "" {
		return "the simulated world"
	}
	return fmt.Sprintf("rank %d on %s", o.Rank, o.Host)
}

// forwardOutput prints the output line of an event to standard output or standard error, as the
// rank did. If Label is set, the number of the rank precedes the line. A simulation has no labels:
// one process, without a host, runs all ranks.
func (c *Config) forwardOutput(e *launch.Event) {
	to := os.Stdout
	if e.Stream == launch.Stderr {
		to = os.Stderr
	}
	label := ""
	if c.Label && e.Host != "" {
		label = fmt.Sprintf("%d: ", e.Rank)
	}
	_, _ = io.WriteString(to, label+cli.Printable(e.Text)+"\n") // there is no other place for the error
}
