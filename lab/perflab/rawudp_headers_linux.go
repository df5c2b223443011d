package perflab

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawHeaderEnd is a rawEnd that also receives source address, traffic class and hop limit.
type rawHeaderEnd struct {
	rawEnd
	name    unix.RawSockaddrInet6
	iov     unix.Iovec
	control [128]byte
	msg     unix.Msghdr
}

func newRawHeaderEnd(s *udpSocket, cfg RawUDPPingPongConfig) (*rawHeaderEnd, error) {
	level, opts := unix.IPPROTO_IPV6, []int{unix.IPV6_RECVTCLASS, unix.IPV6_RECVHOPLIMIT}
	if s.addr.Addr().Is4() {
		level, opts = unix.IPPROTO_IP, []int{unix.IP_RECVTOS, unix.IP_RECVTTL}
	}
	for _, opt := range opts {
		if err := unix.SetsockoptInt(s.fd, level, opt, 1); err != nil {
			return nil, fmt.Errorf("raw ping-pong: ask for headers: %w", err)
		}
	}
	p := &rawHeaderEnd{rawEnd: *newRawEnd(s, cfg)}
	p.iov.Base = &p.buf[0]
	p.iov.SetLen(len(p.buf))
	p.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&p.name)), Iov: &p.iov, Control: &p.control[0]}
	p.msg.SetIovlen(1)
	return p, nil
}

func (p *rawHeaderEnd) receive() error {
	var deadline time.Time
	for spins := 1; ; spins++ {
		p.msg.Namelen = unix.SizeofSockaddrInet6
		p.msg.SetControllen(len(p.control))
		var errno syscall.Errno
		if p.block {
			_, _, errno = syscall.Syscall6(unix.SYS_RECVMSG, uintptr(p.s.fd), uintptr(unsafe.Pointer(&p.msg)), 0, 0, 0, 0)
		} else {
			_, _, errno = syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(p.s.fd), uintptr(unsafe.Pointer(&p.msg)), 0, 0, 0, 0)
		}
		switch errno {
		case 0:
			return nil
		case unix.EAGAIN, unix.EINTR:
		default:
			return fmt.Errorf("recvmsg: %w", errno)
		}
		if (p.block || spins%4096 == 0) && timedOut(&deadline) {
			return errNoReply
		}
	}
}
