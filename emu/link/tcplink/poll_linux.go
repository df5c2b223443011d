package tcplink

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

const (
	// maxDirectStreams is the number of streams up to which Ready reports all of them
	// without a call of epoll, which costs about as much as two empty recvs.
	maxDirectStreams = 2
	// epollInterval: with few streams, Ready polls epoll only in every epollInterval-th call, for
	// listeners.
	epollInterval = 32
	// maxEvents bounds the events of one epoll call.
	maxEvents = 64
)

// poller holds the epoll descriptor, and lets one goroutine sleep on it.
type poller struct {
	epollFD, eventFD int
	queue            []link.StreamID            // IDs that Ready has to report
	readyCalls       uint                       // of Ready, so far
	pollEvents       [maxEvents]unix.EpollEvent // for polls that do not block

	state       atomic.Uint32              // of the sleeper
	sleeping    sync.Mutex                 // held in WaitReady
	sleepEvents [maxEvents]unix.EpollEvent // for polls that block
	noPwait2    bool                       // use ppoll: the kernel has no epoll_pwait2 (before Linux 5.11)
}

// States of the sleeper. Only the wake-up of a sleeping goroutine needs a system call.
const (
	awake = iota
	asleep
	woken
)

// open creates the epoll descriptor, and the eventfd that wakes a goroutine from it.
func (p *poller) open() (err error) {
	if p.epollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		p.epollFD = -1
		return os.NewSyscallError("epoll_create", err)
	}
	if p.eventFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.eventFD = -1
		return os.NewSyscallError("eventfd", err)
	}
	// Level-triggered: a nonblocking poll must not consume the wake-up of a sleeping goroutine.
	e := unix.EpollEvent{Events: unix.EPOLLIN}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epollFD, unix.EPOLL_CTL_ADD, p.eventFD, &e))
}

// close closes the descriptors that are open.
func (p *poller) close() {
	for _, fd := range []int{p.epollFD, p.eventFD} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// watch adds fd to epoll, edge-triggered. Its events carry the ID instead of the descriptor.
func (p *poller) watch(fd int, id link.StreamID, events uint32) error {
	e := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(id)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epollFD, unix.EPOLL_CTL_ADD, fd, &e))
}

// markReady makes the next Ready report id as readable or writable or both.
func (n *Net) markReady(id link.StreamID, readable, writable bool) {
	s := &n.slots[id]
	s.readable = s.readable || readable
	s.writable = s.writable || writable
	if !s.queued {
		s.queued = true
		n.poller.queue = append(n.poller.queue, id)
	}
}

// markEnded makes the next Ready report a stream that has ended, as readable and writable.
func (n *Net) markEnded(id link.StreamID) {
	const readable, writable = true, true
	n.markReady(id, readable, writable)
}

// markReadable makes the next Ready report id as readable.
func (n *Net) markReadable(id link.StreamID) {
	const readable, writable = true, false
	n.markReady(id, readable, writable)
}

// handleEvents marks the streams and listeners of epoll events as ready. The ID of an event may
// have been reused since; Ready may then report a new stream without an event.
func (n *Net) handleEvents(events []unix.EpollEvent) {
	for i := range events {
		e := &events[i]
		id := link.StreamID(e.Fd)
		if id == 0 {
			continue // the eventfd
		}
		ended := e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		if s := n.slots[id].stream; s != nil && ended {
			s.endPending, s.errorPending = true, s.errorPending || e.Events&unix.EPOLLERR != 0
		}
		n.markReady(id, ended || e.Events&unix.EPOLLIN != 0, ended || e.Events&unix.EPOLLOUT != 0)
	}
}

// Ready implements link.StreamNet. If there are at most maxDirectStreams streams, it reports all as
// readable, because reads that find nothing cost less than epoll; only streams after EOF need an
// event. It then polls epoll only every epollInterval calls, for listeners, and while a stream
// waits to be connected or writable. With more streams, it reports those with epoll events.
func (n *Net) Ready(ready []link.StreamReady) int {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return 0
	}
	reportAll := len(n.live) <= maxDirectStreams && len(n.live) < len(ready) // leaves room for a listener
	if n.poller.readyCalls++; n.poller.readyCalls%epollInterval == 0 || !reportAll || n.needsEpoll() {
		n.pollEpoll()
	}
	count := 0
	if reportAll {
		for _, s := range n.live {
			if slot := &n.slots[s.id]; !s.eof || slot.queued { // queued: it has an event
				ready[count] = link.StreamReady{ID: s.id, Readable: true, Writable: slot.writable}
				slot.readable, slot.writable = false, false
				count++
			}
		}
	}
	if len(n.poller.queue) > 0 {
		count += n.popReady(ready[count:])
	}
	n.mu.Unlock()
	return count
}

// needsEpoll reports whether a stream waits to be connected or writable.
func (n *Net) needsEpoll() bool {
	return slices.ContainsFunc(n.live, func(s *Stream) bool { return !s.connected || s.sendBufFull })
}

// pollEpoll marks the streams and listeners with epoll events as ready, without blocking.
func (n *Net) pollEpoll() {
	p := &n.poller
	n.stats.PollCalls++
	k, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epollFD), uintptr(unsafe.Pointer(&p.pollEvents[0])), maxEvents, 0, 0, 0)
	if errno == 0 {
		n.handleEvents(p.pollEvents[:k])
	}
}

// popReady moves queued IDs to ready and returns how many. It drops an ID without events: Ready has
// reported them without the queue, or the stream was closed.
func (n *Net) popReady(ready []link.StreamReady) (count int) {
	p := &n.poller
	for i, id := range p.queue {
		if count == len(ready) {
			p.queue = p.queue[:copy(p.queue, p.queue[i:])]
			return count
		}
		s := &n.slots[id]
		s.queued = false
		if s.readable || s.writable {
			ready[count] = link.StreamReady{ID: id, Readable: s.readable, Writable: s.writable}
			s.readable, s.writable = false, false
			count++
		}
	}
	p.queue = p.queue[:0]
	return count
}

// WaitReady implements link.StreamWaiter: it sleeps until Ready has something to report, Wake is
// called, or d has passed. A negative d never passes.
func (n *Net) WaitReady(d time.Duration) error {
	p := &n.poller
	p.sleeping.Lock()
	defer p.sleeping.Unlock()
	n.mu.Lock()
	closed, queued := n.closed, len(p.queue) > 0
	n.mu.Unlock()
	if closed {
		return link.ErrClosed
	}
	if queued {
		return nil
	}
	if !p.state.CompareAndSwap(awake, asleep) {
		p.state.Store(awake) // woken before the sleep began
		return nil
	}
	if d != 0 {
		// A goroutine that has just become runnable may be queued on this P, which blocks in
		// the system call: it would wait for sysmon, up to 10 ms.
		runtime.Gosched()
	}
	k, err := p.sleep(d)
	if p.state.Swap(awake) == woken {
		// If the waker has not written yet, the next sleep ends early.
		var count [8]byte
		unix.Read(p.eventFD, count[:])
	}
	n.mu.Lock()
	n.stats.Sleeps++
	n.handleEvents(p.sleepEvents[:k])
	n.mu.Unlock()
	return err
}

// sleep blocks in epoll until an event or until d has passed (never if negative). It returns the
// number of events in p.sleepEvents.
func (p *poller) sleep(d time.Duration) (int, error) {
	var ts unix.Timespec
	var timeout *unix.Timespec
	if d >= 0 {
		ts = unix.NsecToTimespec(d.Nanoseconds())
		timeout = &ts
	}
	if !p.noPwait2 {
		k, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epollFD), uintptr(unsafe.Pointer(&p.sleepEvents[0])), maxEvents, uintptr(unsafe.Pointer(timeout)), 0, 0)
		switch errno {
		case 0:
			return int(k), nil
		case unix.EINTR:
			return 0, nil
		case unix.ENOSYS, unix.EPERM: // an old kernel, or a seccomp filter
			p.noPwait2 = true
		default:
			return 0, os.NewSyscallError("tcplink: epoll_pwait2", errno)
		}
	}
	// The timeout of epoll_wait is in milliseconds: wait by ppoll. An epoll descriptor is readable
	// if there are events.
	fds := [1]unix.PollFd{{Fd: int32(p.epollFD), Events: unix.POLLIN}}
	if _, err := unix.Ppoll(fds[:], timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return 0, os.NewSyscallError("tcplink: ppoll", err)
	}
	k, err := unix.EpollWait(p.epollFD, p.sleepEvents[:], 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return 0, os.NewSyscallError("tcplink: epoll_wait", err)
	}
	return max(k, 0), nil
}

// Wake implements link.StreamWaiter.
func (n *Net) Wake() {
	n.mu.Lock()
	if !n.closed {
		n.poller.wake()
	}
	n.mu.Unlock()
}

// wake ends the current sleep or else the next one.
func (p *poller) wake() {
	if p.state.Swap(woken) != asleep {
		return
	}
	one := [8]byte{1} // not zero in either byte order
	unix.Write(p.eventFD, one[:])
}
