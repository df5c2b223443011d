package uswitch

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Run lets frames pass until ctx ends or the switch is closed. It may be called
// again after that. A port that fails or vanishes is not its end: see
// [PortStats.State].
func (s *Switch) Run(ctx context.Context) error {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return fmt.Errorf("%s: %w", s.name, os.ErrClosed)
	case s.running:
		s.mu.Unlock()
		return fmt.Errorf("%s: %w", s.name, errRunning)
	}
	s.running, s.stop, s.stopped = true, false, make(chan struct{})
	s.mu.Unlock()
	cancel := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		s.stop = true
		s.mu.Unlock()
		s.interrupt()
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
	s.mu.Lock()
	s.thread.start()
	s.mu.Unlock()
	err = s.loop()
	s.mu.Lock()
	s.thread.stop()
	s.running = false
	close(s.stopped)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func (s *Switch) loop() error {
	events := make([]unix.EpollEvent, len(s.sockets)+1)
	n := 0
	for {
		s.mu.Lock()
		for i := range events[:n] {
			if e := &events[i]; e.Fd == wakeEvent {
				var b [8]byte
				_, _ = unix.Read(s.wake, b[:])
			} else {
				s.serve(int(e.Fd))
			}
		}
		c := s.core
		c.now = s.Now()
		if c.deadline() <= c.now {
			c.tick()
			c.flush()
		}
		next, stop := c.deadline(), s.stop
		s.mu.Unlock()
		if stop {
			return nil
		}
		var err error
		if n, err = s.wait(events, next); err != nil {
			return err
		}
	}
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
	if sock := s.sockets[p.index]; sock.failed && p.state != PortGone && sock.gone() {
		s.core.takeDown(p, PortGone)
	}
}

// wait sleeps until a port has frames, the switch is interrupted or the deadline
// has come.
func (s *Switch) wait(events []unix.EpollEvent, deadline time.Duration) (int, error) {
	// What has come meanwhile is found without giving the processor away.
	if n := epollNow(s.epoll, events); n > 0 {
		return n, nil
	}
	var timeout *unix.Timespec
	if deadline != Never {
		left := deadline - s.Now()
		if left <= 0 {
			return 0, nil
		}
		ts := unix.NsecToTimespec(int64(left))
		timeout = &ts
	}
	n, errno := epollWait(s.epoll, events, timeout)
	if errno != 0 && errno != unix.EINTR {
		return 0, os.NewSyscallError("epoll_pwait2", errno)
	}
	return n, nil
}

func epollNow(epoll int, events []unix.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

func epollWait(epoll int, events []unix.EpollEvent, timeout *unix.Timespec) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	if errno == unix.ENOSYS { // before 5.11: whole milliseconds, the last of them spent awake
		ms := -1
		if timeout != nil {
			ms = int(timeout.Nano() / int64(time.Millisecond))
		}
		k, err := unix.EpollWait(epoll, events, ms)
		if err != nil {
			return 0, unix.EINTR
		}
		return k, 0
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
