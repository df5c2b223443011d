package device

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// portWatch reports changes of the interface that owns a port's addresses: whether its link is up,
// and whether it still has the addresses. Sockets do not report either. It listens to rtnetlink,
// which needs no privilege.
type portWatch struct {
	file  *os.File // the netlink socket
	state *portState
	buf   []byte

	seq     uint32 // sequence number of the last request
	dumpSeq uint32 // of the address dump under way; 0 if there is none
	linkSeq uint32 // of the link request under way; 0 if there is none
	resync  bool   // messages were lost: request all addresses again

	done chan struct{} // closed when the goroutine has ended; nil before it began
}

const (
	// bufBytes is the largest datagram of a netlink dump.
	bufBytes = 32 << 10
	// openTimeout is how long openPortWatch waits for the initial state.
	openTimeout = 30 * time.Second
	// multicastGroups are the notifications that the socket subscribes to.
	multicastGroups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1)
)

// openPortWatch watches the interface that owns the addresses, in the network namespace of the
// caller's thread. When it returns, the initial state is known, and no later change is missed.
func openPortWatch(addrs []netip.Addr) (*portWatch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	w := &portWatch{file: os.NewFile(uintptr(fd), "rtnetlink"), state: newPortState(addrs), buf: make([]byte, bufBytes)}
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

// readInitialState requests the state of addresses and interface, and waits for it.
func (w *portWatch) readInitialState() error {
	if err := w.file.SetReadDeadline(time.Now().Add(openTimeout)); err != nil {
		return err
	}
	if err := w.requestAddrs(); err != nil {
		return err
	}
	for w.dumpSeq != 0 || w.linkSeq != 0 || w.resync { // a request is under way, or must be repeated
		if err := w.receiveOnce(func(portChange) {}); err != nil {
			return err
		}
	}
	return w.file.SetReadDeadline(time.Time{})
}

// Start calls the observer for a link that is down and for missing addresses, and then for
// every change, from a goroutine that Close stops. It may be called once.
func (w *portWatch) Start(o link.PortObserver) {
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
		for w.receiveOnce(func(c portChange) { w.state.notify(o, c) }) == nil {
		}
	}()
}

// Close stops the watch. The observer is not called after it returns.
func (w *portWatch) Close() error {
	err := w.file.Close()
	if w.done != nil {
		<-w.done
	}
	return err
}

// receiveOnce waits for a datagram of the kernel and handles its messages. An error ends
// the watch.
//
// A socket that has overflowed reports ENOBUFS once, and drops messages until it is empty.
// It is therefore drained before the addresses are requested again.
func (w *portWatch) receiveOnce(report func(portChange)) error {
	draining := w.resync && w.dumpSeq == 0
	n, fromKernel, err := w.receive(!draining)
	switch {
	case errors.Is(err, unix.EAGAIN): // drained
		return w.requestAddrs()
	case errors.Is(err, unix.ENOBUFS): // messages were lost
		w.resync = true
	case err != nil:
		return err
	case fromKernel:
		all, _ := syscall.ParseNetlinkMessage(w.buf[:n]) // no messages if any is invalid
		for i := range all {
			if err := w.handle(&all[i], report); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive reads one datagram, and blocks if wait is set. It reports whether the kernel sent
// it: other processes may send datagrams too.
func (w *portWatch) receive(wait bool) (n int, fromKernel bool, err error) {
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

// requestAddrs starts a dump of all addresses. One dump can be under way at a time. A link request
// under way is no longer waited for, since handleDone makes another.
func (w *portWatch) requestAddrs() error {
	w.resync = false
	for i := range w.state.addrs {
		w.state.addrs[i].inDump = false
	}
	w.seq++
	w.dumpSeq, w.linkSeq = w.seq, 0
	return w.send(newAddrDump(w.seq))
}

// requestLink requests the state of the interface. linkSeq is set until the reply has arrived.
func (w *portWatch) requestLink() error {
	w.seq++
	w.linkSeq = w.seq
	return w.send(newLinkRequest(w.seq, w.state.index))
}

func (w *portWatch) send(b []byte) error {
	_, err := w.file.Write(b)
	return err
}

// handle updates the state with a message, and calls report with the change. If the port's
// addresses moved to another interface, it requests the state of that interface.
func (w *portWatch) handle(m *syscall.NetlinkMessage, report func(portChange)) error {
	if m.Header.Flags&unix.NLM_F_DUMP_INTR != 0 {
		w.resync = true // the addresses changed during the dump
	}
	var c portChange
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if index, flags, ok := parseLink(m); ok {
			c = w.state.updateLink(index, flags, m.Header.Type == unix.RTM_DELLINK)
		}
		if m.Header.Seq == w.linkSeq {
			w.linkSeq = 0
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if a, ok := parseAddr(m); ok {
			c = w.state.updateAddr(&a)
		}
	case unix.NLMSG_DONE:
		return w.handleDone(m, report)
	case unix.NLMSG_ERROR:
		var err error
		if c, err = w.handleError(m); err != nil {
			return err
		}
	}
	report(c)
	if c.interfaceChanged && w.dumpSeq == 0 { // after a dump, handleDone requests it
		return w.requestLink()
	}
	return nil
}

// handleDone ends an address dump: it reports the addresses that are gone, and requests the state
// of the port's interface, if that interface is known.
func (w *portWatch) handleDone(m *syscall.NetlinkMessage, report func(portChange)) error {
	if m.Header.Seq != w.dumpSeq || m.Header.Seq == 0 { // not of this dump; dumpSeq is 0 without one
		return nil
	}
	w.dumpSeq = 0
	if w.resync {
		return nil // the dump is repeated
	}
	w.state.endDump(report)
	if w.state.index == 0 {
		return nil
	}
	return w.requestLink()
}

// handleError handles an error reply. A link request fails if the interface was removed before.
func (w *portWatch) handleError(m *syscall.NetlinkMessage) (c portChange, err error) {
	const errnoBytes = 4 // the payload is the errno and the failed request
	switch {
	case len(m.Data) < errnoBytes || m.Header.Seq == 0: // not a reply to a request of this socket
		return c, nil
	case m.Header.Seq == w.dumpSeq:
		return c, fmt.Errorf("list addresses: %w", unix.Errno(-int32(order.Uint32(m.Data))))
	case m.Header.Seq == w.linkSeq:
		w.linkSeq = 0
		return w.state.updateLink(w.state.index, 0, true), nil // no flags: removed
	}
	return c, nil
}
