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

// onceJob is what the process of a lab for one program is told.
type onceJob struct {
	Config Config
	Path   string
	Args   []string
	Dir    string
}

// onceFD is where it is told.
const onceFD = 3

// RunOnce brings guests up, runs a program on their network with the descriptors of
// this process, and takes them down. It returns the program's exit code, or 128 and
// the number of the signal that ended it. Everything dies with this process. A guest
// that goes while the program runs ends it, and is a GuestError.
func RunOnce(ctx context.Context, cfg Config, args []string) (code int, err error) {
	if _, err := cfg.withDefaults(); err != nil {
		return 0, err
	}
	if err := cfg.absolute(); err != nil {
		return 0, err
	}
	j := onceJob{Config: cfg, Args: args}
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
	inEnd.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return code, nil // it has said why, and that it did not listen follows from it
	}
	return 0, told
}

// OnceMain is what the process of a lab for one program does. The code is the
// program's.
func OnceMain() (code int, err error) {
	var j onceJob
	in := os.NewFile(onceFD, "job")
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return 0, fmt.Errorf("read what to bring up: %w", err)
	}
	in.Close()
	ctx, cancel := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer cancel()
	l, err := Up(ctx, j.Config)
	if err != nil {
		return 0, err
	}
	code, err = l.attend(ctx, &j)
	return code, errors.Join(err, l.Down())
}

// attend runs the program until it ends, or a guest does.
func (l *Lab) attend(ctx context.Context, j *onceJob) (code int, err error) {
	cmd := &exec.Cmd{Path: j.Path, Args: j.Args, Dir: j.Dir, Env: l.environment(os.Environ())}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := l.ns.Start(cmd); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state says how it ended
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
		_ = cmd.Process.Kill() // it would wait for a guest that is no more
		<-ended
		return 0, m.obituary()
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

// exitCode is how a process ended, as shells put it.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// environment is for a program on the lab's network: from there Connect reaches the
// guests, and not the lab.
func (l *Lab) environment(env []string) []string {
	return append(env, fmt.Sprintf("%s=%d", insideVariable, l.cfg.Guests))
}
