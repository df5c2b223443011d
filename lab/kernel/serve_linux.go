package kernel

import (
	"context"
	"fmt"
	"net"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/lab/daemon"
)

// ServeMain is the main function of a lab's process.
func ServeMain() error {
	s := &server{}
	return daemon.Serve(&kind, &s.config, func(booting context.Context, name string) (_ daemon.Lab[request], err error) {
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

// Handle implements daemon.Lab.
func (s *server) Handle(c *daemon.Client, r *request) (err error) {
	switch r.Op {
	case opStatus:
		i := s.config.Image
		return c.ReplyJSON(&Info{
			Name: s.name, Series: i.Series, Release: i.Release, Accel: s.lab.Accel(), Devices: s.lab.cfg.Devices, MTU: s.lab.cfg.MTU,
			Guests: s.lab.Status(), Consoles: s.config.Consoles,
		})
	case opGuest:
		return s.serveGuestConn(c, r.Guest)
	case opRestart:
		err = s.lab.Restart(s.ctx, r.Guest)
	case opConsole:
		text, err := s.lab.Console(r.Guest)
		if err != nil {
			return err
		}
		return c.Reply([]byte(text))
	case opSet:
		if r.Impair == nil {
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
		return c.Run(cmd, s.lab.ns.Start, func() {}, func() {})
	case opDown:
		c.Down()
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	if err != nil {
		return err
	}
	return c.Reply(nil)
}

// serveGuestConn sends a client a connection to a guest, and an error if the guest
// ends, because its connection does not close then.
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
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = c.Frames.Serve(func(control.Frame) error { return control.ErrProtocol }) // until it disconnects
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-gone:
		return nil
	}
}
