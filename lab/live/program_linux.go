package live

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// programJob is the input of the process of a fabric for one program.
type programJob struct {
	Program
	Text string `json:"text"` // of the scenario
	Dir  string `json:"dir"`
}

// RunProgram creates the fabric of a scenario, runs a program in each of its hosts, and removes
// the fabric. It returns the exit code of the first host whose program failed, or 0.
func RunProgram(ctx context.Context, s *scenarios.Scenario, o Program) (code int, err error) {
	text, err := s.Marshal()
	if err != nil {
		return 0, err
	}
	j := programJob{Program: o, Text: string(text)}
	if j.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	if s.Fabric.Cable == scenarios.SharedMemory { // needs no namespaces
		return j.run(ctx)
	}
	return daemon.RunOnce(ctx, ProgramCommand, j)
}

// ProgramMain is the main function of the process that RunProgram starts in new namespaces. It
// creates the fabric, begins its impairments, runs the program in each host, and returns the exit
// code of the first host whose program failed, or 0.
func ProgramMain() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	var j programJob
	if err := daemon.ReadJob(&j); err != nil {
		return 0, err
	}
	return j.run(ctx)
}

// run creates the fabric and runs the program in each host. It returns the exit code of the first
// host whose program failed, or 0.
func (j *programJob) run(ctx context.Context) (code int, err error) {
	s, err := scenarios.Parse("exec.yaml", []byte(j.Text))
	if err != nil {
		return 0, err
	}
	plan, err := lab.NewPlan(s, lab.Options{})
	if err != nil {
		return 0, err
	}
	testbed, err := nslab.Open(plan, nslab.TestbedOptions{})
	if err != nil {
		return 0, err
	}
	defer testbed.Close() //nolint:errcheck // removed when this process exits
	if err := testbed.Begin(time.Now()); err != nil {
		return 0, err
	}
	group, err := launch.Start(ctx, j.specs(testbed), launch.Options{
		Join:   launch.JoinOptional, // a program need not connect to the launcher
		Output: &cli.PrintableWriter{W: os.Stdout}, KeepGoing: j.KeepGoing,
		Prefix: func(rank int, host string, _ launch.Stream) string {
			if j.Plain {
				return ""
			}
			return host + ": "
		},
	})
	if err != nil {
		return 0, err
	}
	outcomes, _ := group.Wait() // the outcomes have the errors
	return launch.ExitStatus(outcomes, func(o *launch.Outcome) {
		fmt.Fprintf(os.Stderr, "fabrictest: %s %s: %s\n", o.Host, o.State, cli.Printable(o.Error))
	}), nil
}

// specs returns a process to start for each host: the program, in the host's namespace, with
// environment variables that describe the host's NICs. If the cables between the NICs are files of
// shared memory, the program inherits them, and variables tell their descriptors.
func (j *programJob) specs(testbed *nslab.Testbed) (specs []launch.Spec) {
	for i, h := range testbed.Plan.Topology.Hosts {
		env, cables := append(os.Environ(), nics.EnvVars(testbed.Plan.Topology, h)...), testbed.CableFiles()
		if len(cables) > 0 {
			env = append(env, nics.CableVars(h, launch.FirstFile)...)
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: testbed.Start(h.Name),
			Cmd: launch.Command{Path: j.Args[0], Args: j.Args[1:], Dir: j.Dir, Env: env, Files: cables},
		})
	}
	return specs
}
