package udplink

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/racesync"
)

const (
	// maxArrivals bounds one recvmmsg, and maxSuperArrivals one that is likely to
	// bring super-packets: as maxCallBytes does, it bounds the time for which the
	// runtime cannot stop the goroutine.
	maxArrivals      = 64
	maxSuperArrivals = 8
	// burst is how many messages at once make it worth while to have the kernel
	// join them.
	burstMessages = 8
	// slotBytes holds any datagram and any super-packet.
	slotBytes = 1 << 16
	// slotStride keeps the slots out of step with the caches: at a power of two
	// all datagrams of a batch would compete for the same few lines.
	slotStride = slotBytes + 320
)

// receiver reads messages into slots and cuts them into datagrams.
type receiver struct {
	local      netip.AddrPort
	v6, wild   bool
	gro        bool // the kernel may hand over super-packets
	groOnBurst bool // it may from the first burst on

	headers  [maxArrivals]mmsghdr
	iovecs   [maxArrivals]unix.Iovec
	names    [maxArrivals]sockaddr
	controls [maxArrivals]control
	slots    []byte // memory that is never touched is never there

	batch   int // messages to ask for next
	perSlot int // datagrams in the last message delivered
	filled  int // messages that the last read brought
	next    int // the first of them that is not delivered entirely
	off     int // where in its slot the next datagram begins
	dst     netip.AddrPort
	meta    recvMeta // of the message next, once off > 0
}

func (r *receiver) init(info Info, groLater bool) {
	r.local = info.Local
	r.v6, r.wild = info.Local.Addr().Is6(), info.Local.Addr().IsUnspecified()
	r.gro, r.groOnBurst = info.GRO, groLater
	r.slots = make([]byte, maxArrivals*slotStride)
	r.batch, r.perSlot = 1, 1
	for i := range r.headers {
		r.iovecs[i].Base = &r.slots[i*slotStride]
		r.iovecs[i].SetLen(slotBytes)
		h := &r.headers[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovecs[i]
		h.SetIovlen(1)
		h.Control = &r.controls[i].b[0]
	}
}

// pending reports whether datagrams are read but not delivered.
func (r *receiver) pending() bool { return r.next < r.filled }

// Recv fills ds with what has arrived.
func (l *Link) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	if len(ds) == 0 {
		return 0, nil
	}
	if !l.users.enter() {
		return 0, link.ErrClosed
	}
	// The short way, for one message or none. As in Send, each function between
	// here and the system call would add to every message's latency.
	if r := &l.in; r.batch == 1 && len(l.groups) == 0 && !r.pending() {
		h := &r.headers[0]
		h.hdr.Namelen = unix.SizeofSockaddrInet6
		h.hdr.SetControllen(controlSpace)
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(l.fd), uintptr(unsafe.Pointer(h)), 0, 0, 0, 0)
		switch errno {
		case 0:
			l.stats.RecvCalls++
			h.n = uint32(n)
			r.messagesRead(1, 1, r.local)
		case unix.EAGAIN:
			l.stats.RecvCalls++
			l.stats.RecvEmptyCalls++
			l.users.leave()
			return 0, nil
		}
	}
	n, err := l.recv(ds)
	l.sleep.setUndelivered(l.in.pending())
	l.users.leave()
	return n, err
}

func (l *Link) recv(ds []link.Datagram) (int, error) {
	r := &l.in
	// A message that is dropped (truncated) leaves room for another look.
	for {
		if r.pending() {
			if n := l.deliver(ds); n > 0 {
				return n, nil
			}
		}
		if err := l.readAny(len(ds)); err != nil || !r.pending() {
			return 0, err
		}
	}
}

// readAny reads the socket, and those of the groups in turn, until one had
// something.
func (l *Link) readAny(room int) error {
	if len(l.groups) == 0 {
		return l.read(l.fd, l.in.local, room)
	}
	sockets := len(l.groups) + 1
	for range sockets {
		l.nextSocket = (l.nextSocket + 1) % sockets
		fd, dst := l.fd, l.in.local
		if l.nextSocket > 0 {
			g := &l.groups[l.nextSocket-1]
			if !g.own {
				continue
			}
			fd, dst = g.fd, netip.AddrPortFrom(g.addr, dst.Port())
		}
		if err := l.read(fd, dst, room); err != nil || l.in.pending() {
			return err
		}
	}
	return nil
}

// read asks one socket for as many messages as are likely to be there and fit:
// twice as many as long as all come, one after it was found empty, since for
// one the cheaper recvmsg does.
func (l *Link) read(fd int, dst netip.AddrPort, room int) error {
	r := &l.in
	want := max(1, min(r.batch, room/r.perSlot))
	if r.perSlot > 1 {
		want = min(want, maxSuperArrivals)
	}
	n, errno := r.recvMessages(fd, want)
	l.stats.RecvCalls++
	switch errno {
	case 0:
		r.messagesRead(n, want, dst)
		if r.groOnBurst && n == want && n >= burstMessages {
			l.enableGROForBursts()
		}
		return nil
	case unix.EAGAIN, unix.EINTR:
		l.stats.RecvEmptyCalls++
		r.batch = 1
		return nil
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN, unix.EMSGSIZE, unix.ENOMEM:
		l.stats.RecvErrors++ // of an earlier send or of the moment; the socket works
		return nil
	}
	return fmt.Errorf("udplink: receive on %v: %w", l.info.Local, errno)
}

// joinBursts switches GRO on. That is for good: to switch it off while a
// super-packet may be on its way into the queue would make one datagram of it.
func (l *Link) enableGROForBursts() {
	l.in.groOnBurst = false
	if enableGRO(l.fd) != nil {
		return
	}
	l.in.gro = true
	for _, g := range l.groups {
		if g.own {
			enableGRO(g.fd) // as the link's own, which it equals
		}
	}
}

// arrived notes that n of the messages asked for were read.
func (r *receiver) messagesRead(n, want int, dst netip.AddrPort) {
	racesync.Received()
	r.filled, r.next, r.off, r.dst = n, 0, 0, dst
	if n == want {
		r.batch = min(2*want, maxArrivals)
	}
}

// fetch reads up to want messages into the slots.
func (r *receiver) recvMessages(fd, want int) (int, unix.Errno) {
	for i := range want {
		h := &r.headers[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(controlSpace)
	}
	if want == 1 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.headers[0])), 0, 0, 0, 0)
		r.headers[0].n = uint32(n)
		return 1, errno
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.headers[0])), uintptr(want), 0, 0, 0)
	return int(n), errno
}

// deliver cuts the messages read into datagrams until ds is full.
func (l *Link) deliver(ds []link.Datagram) int {
	r := &l.in
	done, bytes := 0, 0
	for r.pending() && done < len(ds) {
		h := &r.headers[r.next]
		size := int(h.n)
		if r.off == 0 {
			if h.hdr.Flags&unix.MSG_TRUNC != 0 {
				l.stats.RecvTruncated++
				r.next++
				continue
			}
			r.parse(r.next, size)
			if r.perSlot = (size + r.meta.segment - 1) / r.meta.segment; r.perSlot > 1 {
				l.stats.GROPackets++
			}
			r.perSlot = max(1, r.perSlot)
		}
		n, off := r.meta.split(ds[done:], r.slots[r.next*slotStride:][:size:size], r.off)
		done, bytes = done+n, bytes+off-r.off
		if r.off = off; off == size {
			r.next++
			r.off = 0
		}
	}
	l.stats.RecvDatagrams += uint64(done)
	l.stats.RecvBytes += uint64(bytes)
	return done
}
