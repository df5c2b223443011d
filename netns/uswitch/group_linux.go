package uswitch

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// group is the switches that share one goroutine.
type group struct {
	members     []member
	epoll       int
	descriptors []descriptor
	events      []unix.EpollEvent
}

// member is a switch of a group.
type member struct {
	*Switch
	next    time.Duration // time of its next timer
	pending bool          // an event occurred since runMember
	ended   bool
}

// descriptor identifies a file descriptor of the epoll set.
type descriptor struct{ member, port int }

// wakePort is the port value of the wake eventfd.
const wakePort = -1

// open creates the epoll set of all members (switches), and makes the first runDue run each one.
func (g *group) open() (err error) {
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	for i := range g.members {
		m := &g.members[i]
		m.pending = true
		if err := g.add(m.wake, i, wakePort); err != nil {
			return err
		}
		for port, sock := range m.sockets {
			if err := g.add(sock.fd, i, port); err != nil {
				return err
			}
		}
	}
	g.events = make([]unix.EpollEvent, len(g.descriptors))
	return nil
}

// add adds a descriptor to the epoll set. The field Fd of its events is its index in g.descriptors.
func (g *group) add(fd, member, port int) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(len(g.descriptors))}
	g.descriptors = append(g.descriptors, descriptor{member, port})
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &e))
}

// release closes the epoll set and ends the members that have not ended.
func (g *group) release() {
	if g.epoll >= 0 {
		unix.Close(g.epoll)
	}
	for i := range g.members {
		if m := &g.members[i]; !m.ended {
			m.end()
		}
	}
}

// loop runs the members, which are switches, until all have ended.
func (g *group) loop() error {
	for i := range g.members {
		m := &g.members[i]
		m.mu.Lock()
		m.cpu.start()
		m.mu.Unlock()
	}
	for n := 0; ; {
		for _, e := range g.events[:n] {
			p := g.descriptors[e.Fd]
			g.members[p.member].handleEvent(p.port)
		}
		deadline, running := g.runDue()
		if !running {
			return nil
		}
		var err error
		if n, err = g.wait(deadline); err != nil {
			return err
		}
	}
}

// handleEvent receives from the readable socket of a port or, for wakePort, clears the eventfd.
func (m *member) handleEvent(port int) {
	m.mu.Lock()
	m.pending = true
	switch {
	case port == wakePort:
		var b [8]byte
		_, _ = unix.Read(m.wake, b[:])
	case !m.stop:
		m.serve(port)
	}
	m.mu.Unlock()
}

// runDue runs the members with due timers or events, and returns the earliest
// next timer; the zero time if there is none. running is false when all have ended.
func (g *group) runDue() (deadline time.Time, running bool) {
	for i := range g.members {
		m := &g.members[i]
		if m.ended {
			continue
		}
		if m.pending || m.next != Never && m.next <= m.Now() {
			g.runMember(m)
		}
		if m.ended {
			continue
		}
		running = true
		if m.next == Never {
			continue
		}
		if at := m.epoch.Add(m.next); deadline.IsZero() || at.Before(deadline) {
			deadline = at
		}
	}
	return deadline, running
}

// runMember runs the due timers of one member, and removes it if it is to stop.
func (g *group) runMember(m *member) {
	m.pending = false
	m.mu.Lock()
	c := m.core
	c.now = m.Now()
	if c.deadline() <= c.now {
		c.runTimers()
		c.flush()
	}
	m.next = c.deadline()
	stop := m.stop
	m.mu.Unlock()
	if stop {
		for _, sock := range m.sockets {
			_ = unix.EpollCtl(g.epoll, unix.EPOLL_CTL_DEL, sock.fd, nil)
		}
		_ = unix.EpollCtl(g.epoll, unix.EPOLL_CTL_DEL, m.wake, nil)
		m.ended = true
		m.end()
	}
}

// wait blocks until a port has frames, a switch is interrupted or the deadline has passed. It
// returns the number of events in g.events.
func (g *group) wait(deadline time.Time) (int, error) {
	// Check without yielding the CPU first.
	if n := epollNow(g.epoll, g.events); n > 0 {
		return n, nil
	}
	var timeout *unix.Timespec
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return 0, nil
		}
		ts := unix.NsecToTimespec(int64(left))
		timeout = &ts
	}
	n, errno := epollWait(g.epoll, g.events, timeout)
	if errno != 0 && errno != unix.EINTR {
		return 0, os.NewSyscallError("epoll_pwait2", errno)
	}
	return n, nil
}

// epollNow returns how many events are ready; 0 on an error. It does not block: a raw system call,
// without Go's scheduler, is enough.
func epollNow(epoll int, events []unix.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// epollWait waits for events with nanosecond resolution, or milliseconds on older kernels.
func epollWait(epoll int, events []unix.EpollEvent, timeout *unix.Timespec) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	if errno == unix.ENOSYS { // before 5.11: milliseconds, rounded down
		ms := -1
		if timeout != nil {
			ms = int(timeout.Nano() / int64(time.Millisecond))
		}
		k, err := unix.EpollWait(epoll, events, ms)
		if errors.As(err, &errno) {
			return 0, errno
		}
		return k, 0
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
