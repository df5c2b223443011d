package portwatch

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// Watch watches the interface that owns a port's addresses.
type Watch struct {
	file  *os.File // the socket, with which Go's poller waits
	state *state
	buf   []byte

	seq     uint32 // of the last request
	dumpSeq uint32 // of the listing of addresses under way; 0 if there is none
	linkSeq uint32 // of the question for the interface under way; 0 if there is none
	resync  bool   // the kernel had more to say than the socket holds: ask again

	done chan struct{} // closed when the goroutine has ended; nil before it began
}

const (
	// bufBytes is the largest datagram that the kernel makes of its answers.
	bufBytes = 32 << 10
	// firstAnswer is how long Open waits to learn how things are.
	openTimeout = 30 * time.Second
	// groups are what news the kernel is asked to send.
	multicastGroups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1)
)

// Open begins to watch the interface that owns the addresses, in the network
// namespace of the caller's thread. When it returns the watch knows how things are;
// from then on nothing is missed.
func Open(addrs []netip.Addr) (*Watch, error) {
	w, err := open(addrs)
	if err != nil {
		return nil, fmt.Errorf("portwatch: watch %v: %w", addrs, err)
	}
	return w, nil
}

func open(addrs []netip.Addr) (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	w := &Watch{file: os.NewFile(uintptr(fd), "rtnetlink"), state: newState(addrs), buf: make([]byte, bufBytes)}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: multicastGroups}); err != nil {
		err = os.NewSyscallError("bind the netlink socket", err)
	} else {
		err = w.readInitialState()
	}
	if err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// learn asks how things are, and waits for the answer.
func (w *Watch) readInitialState() error {
	if err := w.file.SetReadDeadline(time.Now().Add(openTimeout)); err != nil {
		return err
	}
	if err := w.requestAddrs(); err != nil {
		return err
	}
	for w.dumpSeq != 0 || w.linkSeq != 0 || w.resync {
		if err := w.receiveOnce(func(change) {}); err != nil {
			return err
		}
	}
	return w.file.SetReadDeadline(time.Time{})
}

// Start tells the observer what is not as it should be, and from then on what
// changes, each from a goroutine that Close ends. It may be called once.
func (w *Watch) Start(o link.PortObserver) {
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		if !w.state.up {
			o.LinkChanged(false)
		}
		for _, a := range w.state.addrs {
			if !a.present {
				o.AddrChanged(a.original, false)
			}
		}
		for w.receiveOnce(func(h change) { w.state.notify(o, h) }) == nil {
		}
	}()
}

// Close ends the watch. When it returns the observer is not called any more.
func (w *Watch) Close() error {
	err := w.file.Close()
	if w.done != nil {
		<-w.done
	}
	return err
}

// step waits for the kernel to say something, and takes it in. An error is the end.
//
// A socket that has overflowed says so once, and takes nothing more until it is
// empty. So it is emptied before things are asked for anew: what changes behind the
// answer is then heard of, or lost with another notice.
func (w *Watch) receiveOnce(tell func(change)) error {
	again := w.resync && w.dumpSeq == 0
	n, fromKernel, err := w.receive(!again)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return w.requestAddrs()
	case errors.Is(err, unix.ENOBUFS): // some of it is lost, and nobody knows what
		w.resync = true
	case err != nil:
		return err
	case fromKernel:
		for rest := w.buf[:n]; ; {
			m, more, ok := nextMessage(rest)
			if !ok {
				break
			}
			if err := w.handle(&m, tell); err != nil {
				return err
			}
			rest = more
		}
	}
	return nil
}

// receive reads one datagram, for which it waits or not. Others than the kernel may
// send some.
func (w *Watch) receive(wait bool) (n int, fromKernel bool, err error) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	var errno error
	err = conn.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		n, from, errno = unix.Recvfrom(int(fd), w.buf, 0)
		if sender, ok := from.(*unix.SockaddrNetlink); ok {
			fromKernel = sender.Pid == 0
		}
		return !wait || !errors.Is(errno, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, false, err
	case errors.Is(errno, unix.EINTR):
		return 0, false, nil
	}
	return n, fromKernel, errno
}

// ask asks for all that is to be known. One listing can be under way at a time.
func (w *Watch) requestAddrs() error {
	w.resync = false
	w.state.beginDump()
	w.seq++
	w.dumpSeq, w.linkSeq = w.seq, 0
	return w.send(newAddrDump(w.seq))
}

// askLink asks how the interface is.
func (w *Watch) requestLink() error {
	w.seq++
	w.linkSeq = w.seq
	return w.send(newLinkRequest(w.seq, w.state.index))
}

func (w *Watch) send(b []byte) error {
	_, err := w.file.Write(b)
	return err
}

// take takes a message in.
func (w *Watch) handle(m *message, tell func(change)) error {
	if m.flags&unix.NLM_F_DUMP_INTR != 0 {
		w.resync = true // the list has changed while it was made
	}
	var h change
	switch m.typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if l, ok := parseLink(m.payload); ok {
			h = w.state.updateLink(l.index, l.flags, m.typ == unix.RTM_DELLINK)
		}
		if m.seq == w.linkSeq {
			w.linkSeq = 0
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if a, ok := parseAddr(m.payload, m.typ == unix.RTM_DELADDR); ok {
			h = w.state.updateAddr(&a)
		}
	case unix.NLMSG_DONE:
		return w.handleDone(m, tell)
	case unix.NLMSG_ERROR:
		var err error
		if h, err = w.handleError(m); err != nil {
			return err
		}
	}
	tell(h)
	if h.interfaceChanged && w.dumpSeq == 0 {
		return w.requestLink()
	}
	return nil
}

// listed ends a listing of addresses, and goes on to ask for their interface.
func (w *Watch) handleDone(m *message, tell func(change)) error {
	if m.seq != w.dumpSeq || m.seq == 0 {
		return nil
	}
	w.dumpSeq = 0
	if w.resync {
		return nil // what it did not have may have been lost: it is asked for again
	}
	w.state.endDump(tell)
	if w.state.index == 0 {
		return nil
	}
	return w.requestLink()
}

// refused takes an answer that is none. That there is no such interface is one: it
// went before it could be asked for.
func (w *Watch) handleError(m *message) (h change, err error) {
	const errno = 4 // bytes, in front of the request
	switch {
	case len(m.payload) < errno || m.seq == 0: // not to us
		return h, nil
	case m.seq == w.dumpSeq:
		return h, fmt.Errorf("list addresses: %w", unix.Errno(-int32(order.Uint32(m.payload))))
	case m.seq == w.linkSeq:
		w.linkSeq = 0
		return w.state.updateLink(w.state.index, 0, true), nil
	}
	return h, nil
}
