package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// onceJob is what the process of a fabric for one program is told.
type onceJob struct {
	Once
	Text string `json:"text"` // of the scenario
	Dir  string `json:"dir"`
}

const onceFD = 3

// RunOnce brings a fabric up, runs a program in each of its hosts, and takes it
// down. It returns the first exit code that is not 0, in the order of ranks.
func RunOnce(ctx context.Context, s *scenarios.Scenario, o Once) (code int, err error) {
	if err := netns.Available(); err != nil {
		return 0, err
	}
	text, err := s.Marshal()
	if err != nil {
		return 0, err
	}
	j := onceJob{Once: o, Text: string(text)}
	if j.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	in, inEnd, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer inEnd.Close() // again, if all goes well
	cmd := exec.CommandContext(ctx, "/proc/self/exe", OnceCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{in}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err = netns.StartUnshared(cmd)
	in.Close() // with a reader of our own, a child that died early would leave us writing for ever
	if err != nil {
		return 0, err
	}
	told := json.NewEncoder(inEnd).Encode(j)
	if err := errors.Join(inEnd.Close(), ignoreExit(cmd.Wait())); err != nil {
		return 0, err
	}
	if code := exitCode(cmd.ProcessState); code != 0 {
		return code, nil // it has said why, and that it did not listen follows from it
	}
	return 0, told
}

// ignoreExit leaves out that a process ended with a code.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// OnceMain is what that process does. It returns the code to exit with.
func OnceMain() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer stop()
	var j onceJob
	if err := json.NewDecoder(os.NewFile(onceFD, "job")).Decode(&j); err != nil {
		return 0, fmt.Errorf("read the job: %w", err)
	}
	s, err := scenarios.Parse("exec.yaml", []byte(j.Text))
	if err != nil {
		return 0, err
	}
	plan, err := lab.NewPlan(s, lab.Options{})
	if err != nil {
		return 0, err
	}
	stage, err := nslab.OpenStage(plan)
	if err != nil {
		return 0, err
	}
	defer stage.Close() //nolint:errcheck // it goes with this process
	if err := stage.Begin(time.Now()); err != nil {
		return 0, err
	}
	group, err := launch.Start(ctx, j.specs(stage), launch.Options{
		Join: launch.JoinOptional, Output: &printable.Writer{W: os.Stdout}, KeepGoing: j.KeepGoing,
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
	outcomes, _ := group.Wait() // the outcomes say it all
	return verdict(outcomes), nil
}

func (j *onceJob) specs(stage *nslab.Stage) (specs []launch.Spec) {
	for i, h := range stage.Plan.Topology.Hosts {
		host := stage.Fabric.Host(h.Name)
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: host.NS.Start,
			Cmd: launch.Command{
				Path: j.Args[0], Args: j.Args[1:], Dir: j.Dir,
				Env: append(os.Environ(), nics.EnvVars(stage.Plan.Topology, h)...),
			},
		})
	}
	return specs
}

// verdict is the first code that is not 0 of a rank that ended by itself; those
// that were stopped because of it count only if there is none. How a rank ended
// that did not exit is said.
func verdict(outcomes []launch.Outcome) (code int) {
	stopped := 0
	for _, o := range outcomes {
		if o.State.OK() {
			continue
		}
		n := o.ExitCode
		if sig := unix.SignalNum(o.Signal); sig != 0 {
			n = 128 + int(sig)
		} else if n <= 0 {
			n = 1
		}
		if o.State == launch.Stopped {
			stopped = n
			continue
		}
		fmt.Fprintf(os.Stderr, "fabrictest: %s %s: %s\n", o.Host, o.State, printable.Text(o.Error))
		if code == 0 {
			code = n
		}
	}
	if code == 0 {
		code = stopped
	}
	return code
}
