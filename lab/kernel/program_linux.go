package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/launch"
)

// programJob is the input of the process of a lab for one program.
type programJob struct {
	Config Config
	Path   string
	Args   []string
	Dir    string
}

// RunProgram boots guests, runs a program in their namespace with the descriptors
// of this process, and stops them. It returns the exit code, or 128 plus the signal
// number. If a guest ends while the program runs, it kills the program and returns
// a GuestError.
func RunProgram(ctx context.Context, cfg Config, args []string) (code int, err error) {
	if _, err := cfg.withDefaults(); err != nil {
		return 0, err
	}
	if err := cfg.absolute(); err != nil {
		return 0, err
	}
	j := programJob{Config: cfg, Args: args}
	if j.Path, err = exec.LookPath(args[0]); err != nil {
		return 0, err
	}
	if j.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	return daemon.RunOnce(ctx, ProgramCommand, j)
}

// ProgramMain is the main function of the process of a lab for one program. It
// returns the exit code of the program.
func ProgramMain() (code int, err error) {
	var j programJob
	if err := daemon.ReadJob(&j); err != nil {
		return 0, err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer cancel()
	l, err := Up(ctx, j.Config)
	if err != nil {
		return 0, err
	}
	code, err = l.runProgram(ctx, &j)
	return code, errors.Join(err, l.Down())
}

// runProgram runs the program until it ends, or a guest does.
func (l *Lab) runProgram(ctx context.Context, j *programJob) (code int, err error) {
	cmd := &exec.Cmd{Path: j.Path, Args: j.Args, Dir: j.Dir, Env: l.programEnv(os.Environ())}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := l.ns.Start(cmd); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(ended)
	}()
	gone := make(chan *machine, len(l.machines))
	for _, m := range l.machines {
		go func() {
			<-m.ended
			gone <- m
		}()
	}
	select {
	case <-ended:
	case m := <-gone:
		_ = cmd.Process.Kill() // it may wait for the guest
		<-ended
		return 0, m.exitError()
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	return daemon.ExitCode(cmd.ProcessState), nil
}

// programEnv returns the environment of a program in the lab's namespace, where
// Connect reaches the guests directly.
func (l *Lab) programEnv(env []string) []string {
	return append(env, fmt.Sprintf("%s=%d", guestsVar, l.cfg.Guests))
}
