package uswitch

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run forwards frames until ctx ends or the switch is closed. It may be called again. A port that
// fails or is removed does not end it, see [PortStats.State].
func (s *Switch) Run(ctx context.Context) error { return Run(ctx, s) }

// Run runs several switches on one goroutine until ctx ends or all are closed.
// To use several CPUs, run switches on a goroutine each.
func Run(ctx context.Context, switches ...*Switch) error {
	g := &group{epoll: -1}
	defer g.release()
	for _, s := range switches {
		if err := s.begin(g); err != nil {
			return err
		}
	}
	if err := g.open(); err != nil {
		return fmt.Errorf("run switches: %w", err)
	}
	cancel := context.AfterFunc(ctx, func() {
		for _, s := range switches {
			s.mu.Lock()
			s.stop = true
			if !s.closed {
				s.interrupt()
			}
			s.mu.Unlock()
		}
	})
	defer cancel()

	// Set the timer slack of this thread to 1 ns instead of the default 50 µs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }()
	}
	return g.loop()
}

// begin marks s as running and adds it to the group.
func (s *Switch) begin(g *group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("%s: %w", s.name, os.ErrClosed)
	case s.running:
		return fmt.Errorf("%s: %w", s.name, errRunning)
	}
	s.running, s.stop, s.stopped = true, false, make(chan struct{})
	g.members = append(g.members, member{Switch: s})
	return nil
}

// end marks s as stopped.
func (s *Switch) end() {
	s.mu.Lock()
	s.cpu.stop()
	s.running = false
	close(s.stopped)
	s.mu.Unlock()
}

// serve receives a batch of frames from a port and forwards them. Frames that could not be received
// count as malformed.
func (s *Switch) serve(index int) {
	c := s.core
	p, sock := c.ports[index], s.sockets[index]
	n, lost, errno := s.rx.receive(sock.fd)
	if errno != 0 {
		// The socket reports one error when its interface goes down or is
		// removed: checkRemoved asks the kernel which.
		sock.failed = true
		s.checkRemoved(p)
		return
	}
	in := &p.counters[In]
	in.Frames += uint64(lost)
	in.Drops.Malformed += uint64(lost)
	c.now = s.Now()
	for i := range n {
		c.receive(p, &s.rx.packets[i])
	}
	c.flush()
}

// checkRemoved sets a port to removed if its socket has failed because the interface no longer
// exists. The socket of an interface that is only down fails, too.
func (s *Switch) checkRemoved(p *port) {
	if sock := s.sockets[p.index]; sock.failed && p.state != PortRemoved && sock.removed() {
		s.core.setDown(p, PortRemoved)
	}
}
