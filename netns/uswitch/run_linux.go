package uswitch

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run lets frames pass until ctx ends or the switch is closed. It may be called
// again after that. A port that fails or vanishes is not its end: see
// [PortStats.State].
func (s *Switch) Run(ctx context.Context) error { return Run(ctx, s) }

// Run runs several switches on one goroutine, until ctx ends or all are closed: a
// fabric of many cables then costs one thread. Switches that are to use several
// processors have a goroutine each.
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
			if s.stop = true; !s.closed {
				s.interrupt()
			}
			s.mu.Unlock()
		}
	})
	defer cancel()

	// A thread of its own, that wakes at the nanosecond it asked for and not, as
	// others may, up to 50 µs later.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }()
	}
	return g.loop()
}

// begin makes s one that runs.
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

// end makes s one that does not run.
func (s *Switch) end() {
	s.mu.Lock()
	s.thread.stop()
	s.running = false
	close(s.stopped)
	s.mu.Unlock()
}

// serve takes a batch of frames from a port and sends them where they go.
func (s *Switch) serve(index int) {
	c := s.core
	p, sock := c.ports[index], s.sockets[index]
	n, lost, _, errno := s.rx.receive(sock.fd)
	if errno != 0 {
		// The interface went down, and says so once. One that is being removed does
		// so first, and says nothing more: checkGone finds out when it is asked.
		sock.failed = true
		s.checkGone(p)
		return
	}
	if n > 0 {
		sock.failed = false
	}
	in := &p.counts[In]
	in.Frames += uint64(lost)
	in.Drops.Malformed += uint64(lost)
	c.now = s.Now()
	for i := range n {
		c.receive(p, &s.rx.packets[i])
	}
	c.flush()
}

// checkGone ends a port whose interface no longer exists.
func (s *Switch) checkGone(p *port) {
	if sock := s.sockets[p.index]; sock.failed && p.state != PortRemoved && sock.gone() {
		s.core.takeDown(p, PortRemoved)
	}
}
