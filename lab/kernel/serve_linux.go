package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/launch"
)

// ServeMain is the main function of a lab's process, which boots the guests and serves requests
// until the lab is down.
func ServeMain() error {
	s := &server{}
	return daemon.Serve(&kernelLabs, &s.config, func(booting context.Context, name string) (_ daemon.Lab[request], err error) {
		s.name = name
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.lab, err = Up(booting, s.config)
		return s, err
	})
}

// server is the process of a lab.
type server struct {
	name   string
	config Config
	lab    *Lab
	ctx    context.Context // of all requests
	cancel context.CancelFunc
}

// Close implements daemon.Lab.
func (s *server) Close() error {
	s.cancel()
	return s.lab.Down()
}

// Handle implements daemon.Lab: it executes request r of a command such as 'lab kernel down'.
func (s *server) Handle(c *daemon.Client, r *request) (err error) {
	switch r.Op {
	case opStatus:
		i := s.config.Image
		return c.ReplyJSON(&Info{
			Name: s.name, Series: i.Series, Release: i.Release, Accel: s.lab.Accel, Devices: s.lab.cfg.Devices, MTU: s.lab.cfg.MTU,
			Guests: s.lab.Status(), Consoles: s.config.Consoles,
		})
	case opGuest:
		return s.serveGuestConn(c, r.Guest)
	case opRestart:
		err = s.lab.Restart(s.ctx, r.Guest)
	case opConsole:
		text, _, err := s.lab.ConsoleSince(r.Guest, 0)
		if err != nil {
			return err
		}
		return c.Reply([]byte(text))
	case opSet:
		if r.Impair == nil { // the request sets the state of the link
			err = s.lab.SetLink(r.Guest, r.Link)
		} else {
			err = s.lab.Impair(r.Guest, *r.Impair)
		}
	case opRun:
		cmd, err := c.Command(&r.Program)
		if err != nil {
			return err
		}
		cmd.Env = s.lab.programEnv(cmd.Env)
		doNothing := func() {} // at the program's start and end
		return c.Run(cmd, s.lab.ns.Start, doNothing, doNothing)
	case opDown:
		c.Down() // does not return
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	if err != nil {
		return err
	}
	return c.Reply(nil)
}

// serveGuestConn sends a client the descriptor of a connection to a guest. It returns when the
// client disconnects. When the guest ends, the connection stays open, and serveGuestConn returns an
// error.
func (s *server) serveGuestConn(c *daemon.Client, id int) error {
	ctx, stop, conn, err := s.lab.dial(s.ctx, id)
	if err != nil {
		return err
	}
	defer stop()
	file, err := conn.(*net.TCPConn).File()
	conn.Close()
	if err != nil {
		return err
	}
	err = c.Reply(nil, file)
	file.Close()
	if err != nil {
		return err
	}
	disconnected := make(chan struct{})
	go func() {
		defer close(disconnected)
		_ = c.Frames.Serve(func(control.Frame) error { return control.ErrProtocol }) // until it disconnects
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-disconnected:
		return nil
	}
}

// programJob is the input of ProgramMain: the configuration of a lab, and a program.
type programJob struct {
	Config  Config
	Program daemon.Program
}

// RunProgram boots guests, runs a program in their namespace with the standard descriptors of this
// process, and then stops the guests. It returns the exit code, or 128 plus the signal number. If a
// guest ends while the program runs, the program is killed, and the code is that of a failure.
func RunProgram(ctx context.Context, cfg Config, args []string) (code int, err error) {
	if err := cfg.prepareForProcess(); err != nil {
		return 0, err
	}
	program, err := daemon.NewProgram(args)
	if err != nil {
		return 0, err
	}
	return daemon.RunOnce(ctx, ProgramCommand, programJob{cfg, program})
}

// ProgramMain is the main function of a process that RunProgram starts. It brings a lab up, runs
// one program in the lab, takes the lab down, and returns the exit code of the program.
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
	code, err = l.runProgram(ctx, &j.Program)
	return code, errors.Join(err, l.Down())
}

// runProgram runs a program in the lab's namespace and returns its exit code. It kills the program
// if a guest ends, and terminates it if ctx ends.
func (l *Lab) runProgram(ctx context.Context, p *daemon.Program) (code int, err error) {
	cmd := &exec.Cmd{Path: p.Path, Args: p.Args, Dir: p.Dir, Env: l.programEnv(p.Env)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := l.ns.Start(cmd); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(ended)
	}()
	endedGuests := make(chan *machine, len(l.machines))
	for _, m := range l.machines {
		go func() {
			<-m.ended
			endedGuests <- m
		}()
	}
	select {
	case <-ended:
	case m := <-endedGuests:
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
