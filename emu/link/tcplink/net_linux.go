package tcplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Net is a link.StreamNet in one network namespace. The package comment says which methods
// may be called concurrently.
type Net struct {
	cfg Config
	mu  sync.Mutex // protects the fields below
	ns  *os.File   // the network namespace
	// spareFD is a descriptor that is closed if the process has no free one, so that a
	// waiting stream can be accepted and reset.
	spareFD int
	closed  bool

	slots     []slot // by StreamID; 0 is not used
	free      []link.StreamID
	live      []*Stream
	listeners int

	poller poller
	iovecs []unix.Iovec
	stats  Stats
}

// slot holds the stream or listener of a StreamID, and its pending events.
type slot struct {
	stream             *Stream
	listener           *Listener
	readable, writable bool // events to report
	queued             bool // the ID is in poller.queue
}

var _ link.StreamWaiter = (*Net)(nil)

// Open returns a Net in the network namespace of the caller's thread.
func Open(cfg Config) (*Net, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("tcplink: %w", err)
	}
	n := &Net{cfg: cfg, spareFD: -1, poller: poller{epollFD: -1, eventFD: -1}}
	n.slots = make([]slot, 1) // no stream has the ID 0, which is the eventfd in epoll events
	if n.ns, err = process.OpenNetNS(); err == nil {
		if n.spareFD, err = openSpareFD(); err == nil {
			err = n.poller.open()
		}
	}
	if err != nil {
		n.releaseDescriptors()
		return nil, fmt.Errorf("tcplink: %w", err)
	}
	return n, nil
}

// openSpareFD opens the spare descriptor.
func openSpareFD() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, os.NewSyscallError("open /dev/null", err)
}

// Dial implements link.StreamNet. The connection is established later, which Connected reports.
func (n *Net) Dial(_ mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.dial(unmapAddrPort(local), unmapAddrPort(remote))
	if err != nil {
		return nil, fmt.Errorf("tcplink: dial from %v to %v: %w", local, remote, err)
	}
	return s, nil
}

// dial checks the arguments and the limit, creates a socket, and starts to connect it. Without a
// local address, the kernel chooses one.
func (n *Net) dial(local, remote netip.AddrPort) (*Stream, error) {
	switch {
	case n.closed:
		return nil, link.ErrClosed
	case len(n.live) >= n.cfg.MaxStreams:
		return nil, fmt.Errorf("%w: %d streams", link.ErrLimit, len(n.live))
	case !remote.IsValid() || remote.Addr().IsUnspecified() || remote.Port() == 0:
		return nil, errors.New("the remote address needs an IP address and a port")
	case !local.Addr().IsValid():
		local = netip.AddrPortFrom(unspecifiedLike(remote.Addr()), local.Port())
	case local.Addr().Is4() != remote.Addr().Is4():
		return nil, errors.New("the local and the remote address differ in IP version")
	}
	fd, err := n.newSocket(remote.Addr())
	if err != nil {
		return nil, err
	}
	s := &Stream{net: n, fd: fd, local: local, remote: remote}
	if err := s.dial(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := n.addStream(s); err != nil {
		unix.Close(fd)
		return nil, err
	}
	n.stats.Dialed++
	if s.err != nil { // refused at once: Ready and Read report it like a later failure
		n.markEnded(s.id)
	}
	return s, nil
}

// Listen implements link.StreamNet.
func (n *Net) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, err := n.listen(unmapAddrPort(addr), backlog)
	if err != nil {
		return nil, fmt.Errorf("tcplink: listen on %v: %w", addr, err)
	}
	return l, nil
}

// listen checks the arguments and the limit, and creates a listening socket.
func (n *Net) listen(addr netip.AddrPort, backlog int) (*Listener, error) {
	switch {
	case n.closed:
		return nil, link.ErrClosed
	case n.listeners >= n.cfg.MaxListeners:
		return nil, fmt.Errorf("%w: %d listeners", link.ErrLimit, n.listeners)
	case !addr.IsValid():
		return nil, errors.New("no address")
	case backlog < 1:
		return nil, fmt.Errorf("a backlog of %d: want at least 1", backlog)
	}
	fd, err := n.newSocket(addr.Addr())
	if err != nil {
		return nil, err
	}
	l := &Listener{net: n, fd: fd}
	if err = l.listen(addr, min(backlog, maxBacklog)); err == nil {
		l.id = n.allocateID(slot{listener: l})
		if err = n.poller.watch(fd, l.id, unix.EPOLLIN); err != nil {
			n.releaseID(l.id)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	n.listeners++
	return l, nil
}

// addStream allocates an ID for s and adds it to epoll.
func (n *Net) addStream(s *Stream) error {
	s.id = n.allocateID(slot{stream: s})
	if err := n.poller.watch(s.fd, s.id, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP); err != nil {
		n.releaseID(s.id)
		return err
	}
	n.live = append(n.live, s)
	return nil
}

// allocateID stores s under a free ID and returns the ID. If a closed stream had the ID, the ID may
// still be in the queue of ready streams; s keeps the flag queued, to queue the ID only once.
func (n *Net) allocateID(s slot) link.StreamID {
	if last := len(n.free) - 1; last >= 0 {
		id := n.free[last]
		n.free = n.free[:last]
		s.queued = n.slots[id].queued
		n.slots[id] = s
		return id
	}
	n.slots = append(n.slots, s)
	return link.StreamID(len(n.slots) - 1)
}

// releaseID frees an ID. It stays in the queue of ready streams until Ready removes it.
func (n *Net) releaseID(id link.StreamID) {
	n.slots[id] = slot{queued: n.slots[id].queued}
	n.free = append(n.free, id)
}

// closeStream closes the socket of s and frees its ID. If reset is true, the peer gets a RST. Else
// the kernel sends written bytes and a FIN; unread bytes, which would cause a RST, are discarded.
func (n *Net) closeStream(s *Stream, reset bool) {
	if reset {
		resetOnClose(s.fd)
	} else {
		s.discardUnread()
	}
	process.RaceSend() // for the race detector, which does not see raw system calls
	unix.Close(s.fd)
	s.fd = -1
	n.releaseID(s.id)
	if i := slices.Index(n.live, s); i >= 0 {
		last := len(n.live) - 1
		n.live[i], n.live[last] = n.live[last], nil
		n.live = n.live[:last]
	}
}

// resetOnClose makes the close of a socket send a RST instead of a FIN.
func resetOnClose(fd int) {
	zeroLinger := unix.Linger{Onoff: 1}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &zeroLinger) // fails if the connection is gone
}

// Stats returns the counters.
func (n *Net) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Close implements link.StreamNet. It resets streams whose CloseWrite was not called, and ends a
// WaitReady under way.
func (n *Net) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return link.ErrClosed
	}
	n.closed = true
	for len(n.live) > 0 {
		s := n.live[len(n.live)-1]
		s.err = link.ErrClosed
		reset := !s.writeClosed
		n.closeStream(s, reset)
	}
	for i := range n.slots {
		if l := n.slots[i].listener; l != nil {
			l.closeLocked()
		}
	}
	n.poller.wake()
	n.mu.Unlock()

	n.poller.sleeping.Lock() // wait until WaitReady has returned
	defer n.poller.sleeping.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.releaseDescriptors()
	return nil
}

// releaseDescriptors closes the descriptors of the Net itself.
func (n *Net) releaseDescriptors() {
	n.poller.close()
	if n.spareFD >= 0 {
		unix.Close(n.spareFD)
	}
	if n.ns != nil {
		n.ns.Close()
	}
}
