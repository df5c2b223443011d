package kernel

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

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/netns"
)

// programJob is the input of the process of a lab for one program.
type programJob struct {
	Config Config
	Path   string
	Args   []string
	Dir    string
}

// jobFD is the descriptor of the input.
const jobFD = 3

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
	in, inEnd, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer inEnd.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", ProgramCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{in}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err = netns.StartUnshared(cmd)
	in.Close() // otherwise the write below would block if the child dies
	if err != nil {
		return 0, err
	}
	writeErr := json.NewEncoder(inEnd).Encode(j)
	inEnd.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return code, nil // the child printed the reason
	}
	return 0, writeErr
}

// ProgramMain is the main function of the process of a lab for one program. It
// returns the exit code of the program.
func ProgramMain() (code int, err error) {
	var j programJob
	in := os.NewFile(jobFD, "job")
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return 0, fmt.Errorf("read the job: %w", err)
	}
	in.Close()
	ctx, cancel := signal.NotifyContext(context.Background(), interrupt.Signals()...)
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
	return exitCode(cmd.ProcessState), nil
}

// exitCode returns the exit code as a shell does: 128 plus the signal number if the
// process was killed.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// programEnv returns the environment of a program in the lab's namespace, where
// Connect reaches the guests directly.
func (l *Lab) programEnv(env []string) []string {
	return append(env, fmt.Sprintf("%s=%d", guestsVar, l.cfg.Guests))
}
