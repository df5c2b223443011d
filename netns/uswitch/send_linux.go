package uswitch

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sendBatch = 32

// sender sends batches of messages to packet sockets with sendmmsg.
type sender struct {
	headers [sendBatch]mmsghdr
	iov     [sendBatch][maxIovecs + 2]unix.Iovec
}

// send sends all messages, each a frame or a GSO packet of several, and counts the frames in out.
func (s *sender) send(fd int, ms []message, out *Counters) {
	for len(ms) > 0 {
		n := min(len(ms), sendBatch)
		for i := range n {
			s.load(i, &ms[i])
		}
		for next := 0; next < n; {
			sent, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&s.headers[next])), uintptr(n-next), unix.MSG_DONTWAIT, 0, 0)
			if errno == unix.EINTR {
				continue
			}
			if errno != 0 {
				out.Drops.countSendError(errno, uint64(ms[next].frames))
				next++
				continue
			}
			for ; sent > 0; sent-- {
				m := &ms[next]
				out.Frames += uint64(m.frames)
				out.Bytes += uint64(m.bytes())
				if m.frames > 1 {
					out.GSOPackets++
				}
				next++
			}
		}
		ms = ms[n:]
	}
}

// load fills in the header of sendmmsg for message i.
func (s *sender) load(i int, m *message) {
	iov := &s.iov[i]
	iov[0].Base = &m.vnet[0]
	iov[0].SetLen(vnetLen)
	n := 1
	if m.headerLen > 0 {
		iov[n].Base = &m.headers[0]
		iov[n].SetLen(m.headerLen)
		n++
	}
	for _, p := range m.iovs[:m.iovCount] {
		if len(p) > 0 {
			iov[n].Base = unsafe.SliceData(p)
			iov[n].SetLen(len(p))
			n++
		}
	}
	h := &s.headers[i].hdr
	h.Iov = &iov[0]
	h.SetIovlen(n)
}

// countSendError counts frames that the kernel did not accept.
func (d *Drops) countSendError(errno unix.Errno, frames uint64) {
	switch errno {
	case unix.EMSGSIZE:
		d.TooBig += frames
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		d.Down += frames
	default:
		d.SendErrors += frames
	}
}
