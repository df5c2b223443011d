package perflab

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawUDPPingPong measures round trips of bare UDP between a and b, with sendto and recvfrom,
// busy-polling or blocking.
func RawUDPPingPong(a, b RawEndpoint, cfg RawUDPPingPongConfig) (RawUDPPingPongResult, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return RawUDPPingPongResult{}, err
	}
	cfg.cpus = [2]int{a.CPU, b.CPU}
	sa, sb, err := openPair(a, b, cfg.Block)
	if err != nil {
		return RawUDPPingPongResult{}, err
	}
	defer sa.close()
	defer sb.close()
	for _, s := range []*udpSocket{sa, sb} {
		tv := unix.NsecToTimeval(replyTimeout.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return RawUDPPingPongResult{}, fmt.Errorf("raw ping-pong: SO_RCVTIMEO: %w", err)
		}
	}
	return runPingPong(cfg, newRawEnd(sa, cfg), newRawEnd(sb, cfg))
}

// rawEnd is an end of RawUDPPingPong.
type rawEnd struct {
	s     *udpSocket
	buf   []byte
	block bool
}

func newRawEnd(s *udpSocket, cfg RawUDPPingPongConfig) *rawEnd {
	return &rawEnd{s: s, buf: make([]byte, cfg.Bytes), block: cfg.Block}
}

// send sends the datagram, and retries while the socket is full.
func (p *rawEnd) send() error {
	for {
		_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(p.s.fd), uintptr(unsafe.Pointer(&p.buf[0])),
			uintptr(len(p.buf)), 0, uintptr(unsafe.Pointer(&p.s.peer)), uintptr(p.s.peerSize))
		switch errno {
		case 0:
			return nil
		case unix.EAGAIN, unix.EINTR:
		default:
			return fmt.Errorf("sendto: %w", errno)
		}
	}
}

// receive implements pingPonger: it blocks, or polls.
func (p *rawEnd) receive() error {
	if p.block {
		return p.receiveBlocking()
	}
	var deadline time.Time
	for spins := 1; ; spins++ {
		_, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(p.s.fd), uintptr(unsafe.Pointer(&p.buf[0])), uintptr(len(p.buf)), 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EAGAIN, unix.EINTR:
		default:
			return fmt.Errorf("recvfrom: %w", errno)
		}
		if spins%4096 == 0 && timedOut(&deadline) {
			return errNoReply
		}
	}
}

// receiveBlocking blocks in recvfrom.
func (p *rawEnd) receiveBlocking() error {
	for {
		_, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(p.s.fd), uintptr(unsafe.Pointer(&p.buf[0])), uintptr(len(p.buf)), 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		case unix.EAGAIN: // SO_RCVTIMEO
			return errNoReply
		default:
			return fmt.Errorf("recvfrom: %w", errno)
		}
	}
}
