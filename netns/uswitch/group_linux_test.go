package uswitch

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

// newEpoll returns an epoll set that contains one eventfd, and a function that makes it readable. The
// set is edge-triggered: it returns each event once.
func newEpoll(t *testing.T) (epoll int, makeReadable func()) {
	epoll = must.Get(unix.EpollCreate1(unix.EPOLL_CLOEXEC))(t)
	event := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))(t)
	t.Cleanup(func() { unix.Close(event); unix.Close(epoll) })
	must.Do(t, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(event)}))
	return epoll, func() { must.Get(unix.Write(event, []byte{1, 0, 0, 0, 0, 0, 0, 0}))(t) }
}

// A system call that blocks gives up the processor, which the kernel counts.
func TestEpollNowDoesNotBlock(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	epoll, makeReadable := newEpoll(t)
	events := make([]unix.EpollEvent, 4)
	const calls = 50
	var before, after unix.Rusage
	must.Do(t, unix.Getrusage(unix.RUSAGE_THREAD, &before))
	for range calls {
		if n := epollNow(epoll, events); n != 0 {
			t.Fatalf("%d events of an idle set", n)
		}
	}
	must.Do(t, unix.Getrusage(unix.RUSAGE_THREAD, &after))
	if n := after.Nvcsw - before.Nvcsw; n >= calls {
		t.Errorf("the thread blocked %d times in %d calls", n, calls)
	}
	makeReadable()
	if n := epollNow(epoll, events); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// A wait shorter than a millisecond is not rounded down, which would be polling. An event is
// returned by the only system call.
func TestEpollWaitUsesWholeTimeout(t *testing.T) {
	if _, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, ^uintptr(0), 0, 0, 0, 0, 0); errors.Is(errno, unix.ENOSYS) {
		t.Skip("the kernel has no epoll_pwait2")
	}
	epoll, makeReadable := newEpoll(t)
	events := make([]unix.EpollEvent, 4)
	const timeout = 900 * time.Microsecond
	ts := unix.NsecToTimespec(int64(timeout))
	for range 10 {
		begun := time.Now()
		n, errno := epollWait(epoll, events, &ts)
		if errno == unix.EINTR { // a signal of the Go runtime
			continue
		}
		if waited := time.Since(begun); n != 0 || errno != 0 || waited < timeout {
			t.Fatalf("%d events and error %v after %v, want none after %v", n, errno, waited, timeout)
		}
	}
	makeReadable()
	if n, errno := epollWait(epoll, events, &ts); n != 1 || errno != 0 {
		t.Errorf("%d events, error %v, want 1 event", n, errno)
	}
}
