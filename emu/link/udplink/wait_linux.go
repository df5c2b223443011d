package udplink

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// sleeper blocks one goroutine on the link's sockets, while another one may use the link.
// Any goroutine may wake it.
type sleeper struct {
	eventFD     int // -1 before open
	state       atomic.Uint32
	undelivered atomic.Bool // Recv has read datagrams that it did not return yet
	// watched are the eventfd, the socket and the groups' sockets. The list is replaced, not
	// changed: another goroutine may be about to sleep on it.
	watched atomic.Pointer[[]int32]
	fds     []unix.PollFd // used by the sleeping goroutine
	// readable is set when a sleep has ended because a descriptor was readable; nil without a ring.
	readable *atomic.Bool
}

// States of a sleeper. Only the wake-up of a sleeping goroutine needs a system call.
const (
	awake = iota
	asleep
	woken
)

// open creates the eventfd, and makes the sleeper watch it and the socket fd.
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

// watch adds fd to the watched descriptors.
func (s *sleeper) watch(fd int) {
	var fds []int32
	if old := s.watched.Load(); old != nil {
		fds = append(fds, *old...)
	}
	fds = append(fds, int32(fd))
	s.watched.Store(&fds)
	s.wakeIfAsleep() // the current sleep does not watch fd
}

// unwatch removes fd from the watched descriptors.
func (s *sleeper) unwatch(fd int) {
	fds := slices.DeleteFunc(slices.Clone(*s.watched.Load()), func(w int32) bool { return w == int32(fd) })
	s.watched.Store(&fds)
}

// setUndelivered records whether Recv has read datagrams that it did not return yet. Since these
// make no socket readable, it then wakes the goroutine that sleeps, if there is one.
func (s *sleeper) setUndelivered(undelivered bool) {
	if undelivered == s.undelivered.Load() {
		return
	}
	s.undelivered.Store(undelivered)
	if undelivered {
		s.wakeIfAsleep()
	}
}

// WaitReadable implements link.Waiter.
func (l *Link) WaitReadable(d time.Duration) error {
	if !l.users.enter() {
		return link.ErrClosed
	}
	err := l.sleep.sleep(d)
	l.users.leave()
	return err
}

// Wake implements link.Waiter.
func (l *Link) Wake() {
	if l.users.enter() {
		l.sleep.wake()
		l.users.leave()
	}
}

// sleep blocks until a datagram can be read, d has passed (never if negative) or wake is called. It
// returns at once if datagrams that were read earlier are still undelivered.
func (s *sleeper) sleep(d time.Duration) (err error) {
	if s.undelivered.Load() {
		return nil
	}
	if !s.state.CompareAndSwap(awake, asleep) {
		s.state.Store(awake) // wake was called before this sleep
		return nil
	}
	// From here on other goroutines that read datagrams see the state asleep, and wake this one.
	if !s.undelivered.Load() {
		if d != 0 {
			// A goroutine that has just become runnable may be queued on this P, which
			// blocks in the system call: it would wait for sysmon, up to 10 ms.
			runtime.Gosched()
		}
		err = s.poll(d)
	}
	if s.state.Swap(awake) == woken {
		// If the waker has not written yet, the next sleep ends early.
		var count [8]byte
		unix.Read(s.eventFD, count[:])
	}
	return err
}

// wake ends the current sleep or else the next one.
func (s *sleeper) wake() {
	if s.state.Swap(woken) == asleep {
		s.signal()
	}
}

// wakeIfAsleep ends the current sleep, if there is one.
func (s *sleeper) wakeIfAsleep() {
	if s.state.CompareAndSwap(asleep, woken) {
		s.signal()
	}
}

func (s *sleeper) signal() {
	one := [8]byte{1} // not zero in either byte order
	unix.Write(s.eventFD, one[:])
}

// poll blocks in ppoll for d, or without a timeout if d is negative. The timeout of ppoll is finer
// than the millisecond of Go's poller.
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
		n, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.fds[0])), uintptr(len(s.fds)), uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
		switch errno {
		case 0:
			if n > 0 && s.readable != nil {
				s.readable.Store(true)
			}
			return nil
		case unix.EINTR: // the kernel has stored the remaining time in ts
		default:
			return fmt.Errorf("udplink: ppoll: %w", errno)
		}
	}
}
