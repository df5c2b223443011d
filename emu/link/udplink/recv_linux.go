package udplink

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	// maxArrivals bounds one recvmmsg.
	maxArrivals = 64
	// slotBytes holds any datagram and any super-packet.
	slotBytes = 1 << 16
	// slotStride keeps the slots out of step with the caches: at a power of two
	// all datagrams of a batch would compete for the same few lines.
	slotStride = slotBytes + 320
)

// receiver reads messages into slots and cuts them into datagrams.
type receiver struct {
	local   netip.AddrPort
	v6, gro bool
	wild    bool

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
	arrival arrival // of the message next, once off > 0
}

// arrival is what the network said about a message.
type arrival struct {
	src, dst  netip.AddrPort
	flowLabel uint32
	segment   int // the datagrams' length but for the last's
	tclass    uint8
	hopLimit  uint8
}

func (r *receiver) init(info Info) {
	r.local = info.Local
	r.v6, r.gro = info.Local.Addr().Is6(), info.GRO
	r.wild = info.Local.Addr().IsUnspecified()
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
	if !l.gate.enter() {
		return 0, link.ErrClosed
	}
	r := &l.in
	if r.next == r.filled && r.batch == 1 && len(l.groups) == 0 {
		h := &r.headers[0]
		h.hdr.Namelen = unix.SizeofSockaddrInet6
		h.hdr.SetControllen(controlSpace)
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(l.fd), uintptr(unsafe.Pointer(h)), 0, 0, 0, 0)
		if errno == unix.EAGAIN {
			l.stats.RecvCalls++
			l.stats.RecvEmptyCalls++
			l.gate.leave()
			return 0, nil
		}
		if errno == 0 {
			l.stats.RecvCalls++
			h.n = uint32(n)
			r.filled, r.next, r.off, r.dst = 1, 0, 0, r.local
			r.batch = 2
		}
	}
	n, err := l.recv(ds)
	if held := r.pending(); held != l.held.Load() {
		l.held.Store(held)
	}
	l.gate.leave()
	return n, err
}

func (l *Link) recv(ds []link.Datagram) (int, error) {
	r := &l.in
	// An arrival that is dropped (truncated) leaves room for another look.
	for {
		if r.pending() {
			if n := l.deliver(ds); n > 0 {
				return n, nil
			}
		}
		if err := l.readAny(len(ds)); err != nil || r.filled == 0 {
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
		l.turn = (l.turn + 1) % sockets
		fd, dst := l.fd, l.in.local
		if l.turn > 0 {
			g := &l.groups[l.turn-1]
			if !g.own {
				continue
			}
			fd, dst = g.fd, netip.AddrPortFrom(g.addr, dst.Port())
		}
		if err := l.read(fd, dst, room); err != nil || l.in.filled > 0 {
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
	r.filled, r.next, r.off = 0, 0, 0
	want := max(1, min(r.batch, room/r.perSlot))
	n, errno := r.fetch(fd, want)
	l.stats.RecvCalls++
	switch errno {
	case 0:
		r.filled, r.dst = n, dst
		if n == want {
			r.batch = min(2*want, maxArrivals)
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

// fetch reads up to want messages into the slots.
func (r *receiver) fetch(fd, want int) (int, unix.Errno) {
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
		size := int(r.headers[r.next].n)
		if r.off == 0 {
			if r.headers[r.next].hdr.Flags&unix.MSG_TRUNC != 0 {
				l.stats.RecvTruncated++
				r.next++
				continue
			}
			r.parse(r.next, size)
			if size > r.arrival.segment {
				l.stats.GROPackets++
				r.perSlot = (size + r.arrival.segment - 1) / r.arrival.segment
			} else {
				r.perSlot = 1
			}
		}
		slot := r.slots[r.next*slotStride:][:size:size]
		for {
			end := min(r.off+r.arrival.segment, size)
			r.arrival.fill(&ds[done], slot[r.off:end:end])
			bytes += end - r.off
			done++
			r.off = end
			if end == size {
				r.next++
				r.off = 0
				break
			}
			if done == len(ds) {
				break
			}
		}
	}
	l.stats.RecvDatagrams += uint64(done)
	l.stats.RecvBytes += uint64(bytes)
	return done
}

func (a *arrival) fill(d *link.Datagram, payload []byte) {
	d.Src, d.Dst = a.src, a.dst
	d.TClass, d.HopLimit = a.tclass, a.hopLimit
	d.IPID = link.IPIDUnknown
	d.FlowLabel = a.flowLabel
	d.Payload = payload
}

// parse reads what the kernel wrote beside message i of size bytes.
func (r *receiver) parse(i, size int) {
	a := &r.arrival
	a.src, a.dst = getSockaddr(&r.names[i]), r.dst
	a.flowLabel, a.tclass, a.hopLimit = 0, 0, 0
	a.segment = max(1, size)
	c := r.controls[i].b[:r.headers[i].hdr.Controllen]
	for len(c) >= cmsgHeader+8 { // data is padded to 8 bytes
		head := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		n := (int(head.Len) + 7) &^ 7
		if n < cmsgHeader+8 || n > len(c) {
			break
		}
		a.note(head, c[cmsgHeader:n])
		c = c[n:]
	}
}

// note takes in one control message; data is at least 8 bytes.
func (a *arrival) note(head *unix.Cmsghdr, data []byte) {
	value := binary.NativeEndian.Uint32(data)
	switch uint64(head.Level)<<32 | uint64(head.Type) {
	case unix.IPPROTO_IPV6<<32 | unix.IPV6_HOPLIMIT, unix.IPPROTO_IP<<32 | unix.IP_TTL:
		a.hopLimit = uint8(value)
	case unix.IPPROTO_IP<<32 | unix.IP_TOS:
		a.tclass = data[0]
	case unix.SOL_UDP<<32 | unix.UDP_GRO:
		if value > 0 {
			a.segment = int(value)
		}
	case unix.IPPROTO_IPV6<<32 | ipv6FlowInfo:
		info := binary.BigEndian.Uint32(data)
		a.tclass, a.flowLabel = uint8(info>>20), info&flowLabelMask
	case unix.IPPROTO_IPV6<<32 | unix.IPV6_PKTINFO:
		a.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(data)), a.dst.Port())
	case unix.IPPROTO_IP<<32 | unix.IP_PKTINFO:
		a.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[8:])), a.dst.Port())
	}
}
