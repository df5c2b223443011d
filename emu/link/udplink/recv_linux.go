package udplink

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

const (
	// maxMessagesRead bounds the messages of one recvmmsg, and maxSuperPacketsRead if they are
	// likely to be super-packets. Both bound the time without preemption.
	maxMessagesRead     = 64
	maxSuperPacketsRead = 8
	// burstMessages is the number of messages in one call after which GRO is enabled.
	burstMessages = 8
	// slotBytes is the size of a super-packet.
	slotBytes = 1 << 16
	// slotStride is not a power of two, so that the datagrams of a batch do not compete for
	// the same cache lines.
	slotStride = slotBytes + 320
)

// receiver reads messages into slots and splits them into datagrams.
type receiver struct {
	local        netip.AddrPort
	v6, wildcard bool
	gro          bool // GRO is enabled
	groOnBurst   bool // enable GRO at the first burst

	headers  [maxMessagesRead]mmsghdr
	iovecs   [maxMessagesRead]unix.Iovec
	names    [maxMessagesRead]sockaddr
	controls [maxMessagesRead]control
	slots    []byte // allocated lazily by the kernel

	batch      int // messages to read next
	perMessage int // datagrams in the last message delivered
	filled     int // messages of the last read
	next       int // first message that is not delivered entirely
	off        int // offset of the next datagram in its slot
	dst        netip.AddrPort
	meta       recvMeta // of message next, if off > 0
}

// init allocates a slot, a receive buffer, for each message of a batch, and prepares the message
// headers. groOnBurst enables GRO at the first burst.
func (r *receiver) init(info Info, groOnBurst bool) {
	r.local = info.Local
	r.v6, r.wildcard = info.Local.Addr().Is6(), info.Local.Addr().IsUnspecified()
	r.gro, r.groOnBurst = info.GRO, groOnBurst
	r.slots = make([]byte, maxMessagesRead*slotStride)
	r.batch, r.perMessage = 1, 1
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

// pending reports whether messages were read but not delivered.
func (r *receiver) pending() bool { return r.next < r.filled }

// Recv implements link.PacketLink: it returns datagrams that an earlier system call has read, or
// else reads from the socket.
func (l *Link) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	if len(ds) == 0 {
		return 0, nil
	}
	if !l.users.enter() {
		return 0, link.ErrClosed
	}
	if l.ring.fd >= 0 {
		n, err := l.recvInOrder(ds)
		l.sleep.setUndelivered(l.in.pending())
		l.users.leave()
		return n, err
	}
	// Fast path for at most one message, without function calls around the system call, which
	// would add to the latency. After an error other than EAGAIN, recv reads again.
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

// recv fills ds with datagrams that were read before or, if there are none, that it reads now.
func (l *Link) recv(ds []link.Datagram) (int, error) {
	r := &l.in
	// If all messages were truncated, and so dropped, read again.
	for {
		if r.pending() {
			if n := l.deliver(ds, maxMessagesRead); n > 0 {
				return n, nil
			}
		}
		if err := l.readAny(len(ds)); err != nil || !r.pending() {
			return 0, err
		}
	}
}

// readAny reads the sockets of the link and its groups in turn, beginning after the one read last,
// until one has messages. room is how many datagrams the caller can take.
func (l *Link) readAny(room int) error {
	if len(l.groups) == 0 {
		return l.read(l.fd, l.in.local, room)
	}
	sockets := len(l.groups) + 1
	for range sockets {
		l.lastSocket = (l.lastSocket + 1) % sockets
		fd, dst := l.fd, l.in.local
		if l.lastSocket > 0 {
			g := &l.groups[l.lastSocket-1]
			if !g.ownSocket {
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

// read reads a batch of messages from one socket. It assumes that a message has as many datagrams
// as the last one (perMessage), and reads at most room datagrams. The batch doubles while it is
// filled. If the socket is empty, the next batch is one message, as recvmsg is the cheaper call.
func (l *Link) read(fd int, dst netip.AddrPort, room int) error {
	r := &l.in
	want := max(1, min(r.batch, room/r.perMessage))
	if r.perMessage > 1 {
		want = min(want, maxSuperPacketsRead)
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
		l.stats.RecvErrors++ // a pending or temporary error; the socket still works
		return nil
	}
	return fmt.Errorf("udplink: receive on %v: %w", l.info.Local, errno)
}

// enableGROForBursts enables GRO for good: if it were disabled while a super-packet is
// queued, that would be received as one datagram.
func (l *Link) enableGROForBursts() {
	l.in.groOnBurst = false
	if enableGRO(l.fd) != nil {
		return
	}
	l.in.gro = true
	for _, g := range l.groups {
		if g.ownSocket {
			enableGRO(g.fd) // works, as it did for the link's socket
		}
	}
}

// messagesRead notes that n messages were read from the socket with the address dst. If n is want,
// there may be more, and the next batch is twice as large.
func (r *receiver) messagesRead(n, want int, dst netip.AddrPort) {
	process.RaceReceived() // for the race detector, which does not see raw system calls
	r.filled, r.next, r.off, r.dst = n, 0, 0, dst
	if n == want {
		r.batch = min(2*want, maxMessagesRead)
	}
}

// recvMessages reads up to want messages into the slots, and returns how many.
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

// deliver splits up to most of the messages read into datagrams until ds is full, drops truncated
// messages, and returns the number of datagrams. The next call goes on at offset r.off of message r.next.
func (l *Link) deliver(ds []link.Datagram, most int) int {
	r := &l.in
	count, bytes := 0, 0
	for ; r.pending() && count < len(ds) && most > 0; most-- {
		h := &r.headers[r.next]
		size := int(h.n)
		if r.off == 0 {
			if h.hdr.Flags&unix.MSG_TRUNC != 0 {
				l.stats.RecvTruncated++
				r.next++
				continue
			}
			r.parse(r.next, size)
			r.perMessage = max(1, (size+r.meta.segment-1)/r.meta.segment)
			if r.perMessage > 1 {
				l.stats.GROPackets++
			}
		}
		n, off := r.meta.split(ds[count:], r.slots[r.next*slotStride:][:size:size], r.off)
		count, bytes = count+n, bytes+off-r.off
		if r.off = off; off == size {
			r.next++
			r.off = 0
		}
	}
	l.stats.RecvDatagrams += uint64(count)
	l.stats.RecvBytes += uint64(bytes)
	return count
}
