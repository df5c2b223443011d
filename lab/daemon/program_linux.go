package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/netns"
)

// hangupTimeout is the time from SIGHUP to SIGKILL.
const hangupTimeout = time.Second

// NewProgram returns the program args[0], found by PATH, with arguments args and the environment
// and working directory of this process.
func NewProgram(args []string) (p Program, err error) {
	p = Program{Args: args, Env: os.Environ()}
	if len(args) == 0 {
		return p, errors.New("no program to run")
	}
	if p.Path, err = exec.LookPath(args[0]); err != nil {
		return p, err
	}
	p.Dir, err = os.Getwd()
	return p, err
}

// Command returns a command to run a program in a process group of its own, with the client's
// three descriptors as its standard ones. It does not start the command.
func (c *Client) Command(p *Program) (*exec.Cmd, error) {
	switch {
	case len(p.Args) == 0 || p.Path == "":
		return nil, errors.New("no program to run")
	case len(c.Files) != 3:
		return nil, fmt.Errorf("received %d descriptors, want 3", len(c.Files))
	}
	if info, err := os.Stat(p.Dir); p.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("the lab cannot find the working directory %s", p.Dir)
	}
	return &exec.Cmd{
		Path: p.Path, Args: p.Args, Dir: p.Dir, Env: p.Env, Stdin: c.Files[0], Stdout: c.Files[1], Stderr: c.Files[2],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}, nil
}

// Run calls start to start a command, sends answerFiles to the client, calls started, and forwards
// the client's signals to the program. If the client disconnects, Run sends SIGHUP to
// the program, and SIGKILL after hangupTimeout. When the program has ended, Run calls ended, sends
// the exit code to the client, and returns.
func (c *Client) Run(cmd *exec.Cmd, start func(*exec.Cmd) error, started, ended func(), answerFiles ...*os.File) error {
	if err := start(cmd); err != nil {
		return err
	}
	if err := c.Answer(answerFiles...); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(err, cmd.Wait())
	}
	CloseAll(append(c.Files, answerFiles...)) // the program and the client have copies
	started()
	pid := cmd.Process.Pid
	program := &control.Program{PID: pid, Ended: control.Wait(cmd), HangupTimeout: hangupTimeout}
	code, _ := c.Frames.ServeProgram(program) // the code is sent even if the client has disconnected
	_ = syscall.Kill(-pid, syscall.SIGKILL)   // remaining processes of the group
	ended()
	return c.Frames.Write(control.Frame{Kind: control.Exit, Num: uint64(code)})
}

// AwaitExit waits for the end of a program that the lab runs, and returns its exit code. It
// forwards signals to the program; the lab must acknowledge each within ReplyTimeout.
func (c *Call) AwaitExit(signals <-chan os.Signal) (code int, err error) {
	code, err = c.Frames.AwaitExit(&control.ProgramClient{Signals: signals, SignalTimeout: c.kind.ReplyTimeout})
	err = c.WrapErr(err)
	// The lab was up when the program started: the advice of a NotUpError would mislead.
	var gone *NotUpError
	switch {
	case !errors.As(err, &gone):
		return code, err
	case gone.CrashLog != "":
		return 0, fmt.Errorf("%s %s crashed: see %s", c.kind.What, c.name, gone.CrashLog)
	}
	return 0, fmt.Errorf("%s %s went down", c.kind.What, c.name)
}

// jobFD is the descriptor from which the process of RunOnce reads its job.
const jobFD = 3

// RunOnce runs this executable again in new namespaces, and returns its exit code. The process has
// command as its first argument, this process's standard descriptors, job as JSON on descriptor 3,
// where ReadJob reads it, and files as descriptors 4 and later; RunOnce closes files.
func RunOnce(ctx context.Context, command string, job any, files ...*os.File) (code int, err error) {
	defer CloseAll(files)
	if err := netns.Available(); err != nil {
		return 0, err
	}
	jobReader, jobWriter, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer jobWriter.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, append([]*os.File{jobReader}, files...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err = netns.StartUnshared(cmd)
	jobReader.Close() // otherwise the write below would block if the child dies
	CloseAll(files)
	if err != nil {
		return 0, err
	}
	writeErr := json.NewEncoder(jobWriter).Encode(job)
	closeErr := jobWriter.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, errors.Join(closeErr, err)
	}
	if code := ExitCode(cmd.ProcessState); code != 0 {
		return code, nil // the child printed the reason
	}
	return 0, writeErr
}

// ReadJob reads the job into a pointer, in the process that RunOnce started.
func ReadJob(job any) error {
	in := os.NewFile(jobFD, "job")
	defer in.Close()
	if err := json.NewDecoder(in).Decode(job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	return nil
}

// ExitCode returns the exit code of a process as a shell reports it: 128 plus the signal number
// if a signal ended it.
func ExitCode(s *os.ProcessState) int { return control.ExitCode(s.Sys().(syscall.WaitStatus)) }
