package udplink

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// sleeper lets one goroutine sleep on the link's sockets, while another may
// drive the link, and anybody wake it.
type sleeper struct {
	eventFD     int // eventfd; -1 before open
	state       atomic.Uint32
	undelivered atomic.Bool // Recv has read more than it delivered
	// watched are the eventfd, the socket and the groups' sockets. The driver
	// replaces the list; the sleeper, who may be another goroutine, looks at it
	// before each sleep.
	watched atomic.Pointer[[]int32]
	fds     []unix.PollFd // the sleeper's own copy
}

// States of a sleeper. A wake-up costs a system call only if somebody sleeps.
const (
	awake = iota
	asleep
	woken
)

func (s *sleeper) open(fd int) (err error) {
	s.eventFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		s.eventFD = -1
		return os.NewSyscallError("eventfd", err)
	}
	s.watch(s.eventFD)
	s.watch(fd)
	return nil
}

func (s *sleeper) close() {
	if s.watched.Load() != nil {
		unix.Close(s.eventFD)
	}
}

// watch makes arrivals on fd end a sleep; unwatch ends that.
func (s *sleeper) watch(fd int) {
	var fds []int32
	if old := s.watched.Load(); old != nil {
		fds = append(fds, *old...)
	}
	fds = append(fds, int32(fd))
	s.watched.Store(&fds)
	s.wakeIfAsleep() // a sleep under way does not watch fd
}

func (s *sleeper) unwatch(fd int) {
	var fds []int32
	for _, w := range *s.watched.Load() {
		if w != int32(fd) {
			fds = append(fds, w)
		}
	}
	s.watched.Store(&fds)
}

// hold says whether datagrams wait that no socket has any more. The driver may
// stop receiving with some left: then it is the sleeper's turn.
func (s *sleeper) setUndelivered(held bool) {
	if held == s.undelivered.Load() {
		return
	}
	s.undelivered.Store(held)
	if held {
		s.wakeIfAsleep()
	}
}

// WaitReadable blocks until a datagram waits, d has passed (forever if d is
// negative), Wake is called or the link is closed.
func (l *Link) WaitReadable(d time.Duration) error {
	if !l.users.enter() {
		return link.ErrClosed
	}
	err := l.sleep.sleep(d)
	l.users.leave()
	return err
}

// Wake ends a WaitReadable under way, or the next one if there is none.
func (l *Link) Wake() {
	if l.users.enter() {
		l.sleep.wake()
		l.users.leave()
	}
}

func (s *sleeper) sleep(d time.Duration) (err error) {
	if s.undelivered.Load() {
		return nil
	}
	if !s.state.CompareAndSwap(awake, asleep) {
		s.state.Store(awake)
		return nil
	}
	// Who holds or watches something from here on sees that somebody is asleep.
	if !s.undelivered.Load() {
		if d != 0 {
			// A goroutine that the driver has just made runnable may be queued on
			// the driver's processor, which sleeps with it: it would wait until the
			// runtime's monitor looks, up to 10 ms.
			runtime.Gosched()
		}
		err = s.poll(d)
	}
	if s.state.Swap(awake) == woken {
		// The waker may not have written yet: then the next sleep ends early.
		var count [8]byte
		unix.Read(s.eventFD, count[:])
	}
	return err
}

// wake ends the sleep under way or else the next.
func (s *sleeper) wake() {
	if s.state.Swap(woken) == asleep {
		s.signal()
	}
}

// nudge ends the sleep under way, if there is one.
func (s *sleeper) wakeIfAsleep() {
	if s.state.CompareAndSwap(asleep, woken) {
		s.signal()
	}
}

func (s *sleeper) signal() {
	one := [8]byte{1} // any count but zero, in either byte order
	unix.Write(s.eventFD, one[:])
}

// poll sleeps in the kernel. Go's own poller wakes a goroutine no sooner, as
// measured, and keeps time no finer than a millisecond; ppoll does.
func (s *sleeper) poll(d time.Duration) error {
	s.fds = s.fds[:0]
	for _, fd := range *s.watched.Load() {
		s.fds = append(s.fds, unix.PollFd{Fd: fd, Events: unix.POLLIN})
	}
	var ts unix.Timespec
	var timeout *unix.Timespec
	if d >= 0 {
		ts = unix.NsecToTimespec(d.Nanoseconds())
		timeout = &ts
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.fds[0])), uintptr(len(s.fds)), uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR: // the kernel has put the rest of the time into ts
		default:
			return fmt.Errorf("udplink: ppoll: %w", errno)
		}
	}
}
