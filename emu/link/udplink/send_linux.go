package udplink

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Send implements link.PacketLink. It sends datagrams until the socket is full.
func (l *Link) Send(now mono.Time, ds []link.Datagram) (int, error) {
	if !l.users.enter() {
		return 0, link.ErrClosed
	}
	all := ds
	taken, singles := 0, 0
	if l.frames.routes != nil && len(ds) <= maxFrames {
		if taken = l.sendFrames(now, ds); taken == len(ds) {
			l.users.leave()
			return taken, nil
		}
		ds = ds[taken:]
	}
	// Fast path for one datagram without control messages. The CPU mispredicts function returns
	// after a system call. Each function between Send and the system call, such as sendSome and
	// submit, would add such a return, which takes nanoseconds.
	if s := &l.out; len(ds) == 1 && s.encodeSingle(&ds[0]) {
		p, m := ds[0].Payload, &s.single
		fd, to, toLen := l.sendFD(), unsafe.Pointer(&m.addr), uintptr(m.addrLen)
		if l.usePeerSocket(m) { // it is connected to the destination, and needs no address
			fd, to, toLen = l.source.peer, nil, 0
		}
		process.RaceSend() // for the race detector, which does not see raw system calls
		_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0,
			uintptr(to), toLen)
		if errno == 0 {
			l.stats.SendCalls++
			l.stats.SentDatagrams++
			l.stats.SentBytes += uint64(len(p))
			ds[0].Variants = 0
			l.users.leave()
			return taken + 1, nil
		}
	}
	// A datagram that failed above is sent again here, where its error is handled.
	for i := range ds {
		ds[i].Variants = 0
	}
	for full := false; len(ds) > 0 && !full; {
		var n int
		n, singles, full = l.sendSome(ds, singles)
		taken += n
		ds = ds[n:]
	}
	l.users.leave()
	runtime.KeepAlive(all) // an iovec may cover several payloads, and only points to the first
	return taken, nil
}

// sendFrames sends datagrams as frames until one must be sent through the socket, and returns how many it
// has sent. A frame that the kernel refuses is left to the socket, which handles the error.
func (l *Link) sendFrames(now mono.Time, ds []link.Datagram) (sent int) {
	f := &l.frames
	for sent < len(ds) && f.encode(now, &ds[sent]) {
		process.RaceSend() // for the race detector, which does not see raw system calls
		_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(l.ring.fd), uintptr(unsafe.Pointer(unsafe.SliceData(f.buf))), uintptr(len(f.buf)), 0, 0, 0)
		if errno != 0 {
			f.failed()
			break
		}
		l.stats.SentBytes += uint64(len(ds[sent].Payload))
		ds[sent].Variants = link.NoChecksum
		sent++
	}
	l.stats.SendCalls += uint64(sent)
	l.stats.SentFrames += uint64(sent)
	l.stats.SentDatagrams += uint64(sent)
	return sent
}

// sendSome packs and sends one batch. singles is the number of datagrams, from the first on, that
// must not share a super-packet (GSO). It returns how many datagrams the link took, how many of the
// next must be sent as single datagrams because the kernel refused their super-packet, and whether
// the socket is full.
func (l *Link) sendSome(ds []link.Datagram, singles int) (taken, nextSingles int, full bool) {
	s := &l.out
	packed := s.pack(ds, singles)
	if packed == 0 { // ds[0] must not be sent: it is counted as lost
		l.countLost(s.checkSendable(&ds[0]))
		return 1, max(0, singles-1), false
	}
	for next := 0; next < s.used; {
		n, errno := s.submit(l.sendFD(), next)
		l.stats.SendCalls++
		for ; n > 0; n-- {
			m := &s.messages[next]
			l.stats.SentDatagrams += uint64(m.segments)
			l.stats.SentBytes += uint64(m.bytes)
			if m.segments > 1 {
				l.stats.GSOPackets++
			}
			next++
		}
		if errno == 0 || errno == unix.EINTR {
			continue
		}
		m := &s.messages[next]
		switch l.handleSendError(m, errno) {
		case verdictFull:
			s.unpatchFrom(ds, next) // restore the ICRCs that pack changed for super-packets
			return m.first, 0, true
		case verdictSplit:
			s.unpatchFrom(ds, next)
			return m.first, m.segments, false
		case verdictLost:
			next++
		}
	}
	return packed, max(0, singles-packed), false
}

// sendVerdict says how to go on after the kernel refused a message.
type sendVerdict uint8

const (
	verdictLost  sendVerdict = iota // count it as lost
	verdictFull                     // the socket is full: the link does not take it
	verdictSplit                    // send a super-packet again as single datagrams
)

// handleSendError counts the error of a refused send, and decides whether m waits because the
// socket is full, is split into single datagrams, or is lost. It switches off GSO if the path does
// not support it (EIO).
func (l *Link) handleSendError(m *message, errno unix.Errno) sendVerdict {
	switch {
	case errno == unix.EAGAIN || errno == unix.ENOBUFS || errno == unix.ENOMEM:
		l.stats.SendFull++
		return verdictFull
	case m.segments > 1:
		// As a single datagram each gets its own result.
		l.stats.GSORetries++
		if errno == unix.EIO { // the path does not support GSO
			l.out.gso, l.stats.GSODisabled = false, true
		}
		return verdictSplit
	}
	l.countLost(errno)
	return verdictLost
}

// submit sends the packed messages from next on and returns how many were sent, or an
// errno. The calls do not block, so RawSyscall saves the bookkeeping of the runtime.
func (s *sender) submit(fd, next int) (int, unix.Errno) {
	process.RaceSend() // for the race detector, which does not see raw system calls
	if n := s.used - next; n > 1 {
		r, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&s.headers[next])), uintptr(n), 0, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		return int(r), 0
	}
	h, m := &s.headers[next].hdr, &s.messages[next]
	var errno unix.Errno
	if m.segments == 1 && m.controlLen == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(h.Iov.Base)), uintptr(h.Iov.Len), 0,
			uintptr(unsafe.Pointer(h.Name)), uintptr(h.Namelen))
	} else {
		_, _, errno = syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), 0, 0, 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return 1, 0
}

// countLost counts, by errno, a datagram that Send took and the kernel or checkSendable refused.
func (l *Link) countLost(errno unix.Errno) {
	switch errno {
	case unix.EMSGSIZE:
		l.stats.LostTooBig++
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENXIO:
		l.stats.LostUnreachable++
	case unix.ECONNREFUSED:
		l.stats.LostRefused++
	case unix.EPERM, unix.EACCES:
		l.stats.LostDenied++
	default:
		l.stats.LostOther++
		l.stats.LastOtherError = errno
	}
}
