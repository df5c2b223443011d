package tcplink

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Stream is a link.StreamLink: one end of a TCP connection.
type Stream struct {
	net           *Net
	fd            int // -1 after the socket is closed
	id            link.StreamID
	local, remote netip.AddrPort
	mss           int

	connected    bool
	writeClosed  bool  // CloseWrite was called
	eof          bool  // Read has returned io.EOF
	err          error // set if the stream is broken
	endPending   bool  // epoll has reported EOF or an error
	errorPending bool  // epoll has reported an error
	sendBufFull  bool  // the last write was incomplete
	corked       bool  // the kernel may hold back an incomplete segment
}

// Arguments of closeStream.
const withReset, withoutReset = true, false

var _ link.StreamLink = (*Stream)(nil)

// dial starts to connect the socket, which it binds first if s.local has an address or a port. If
// the peer refuses at once, dial sets s.err and returns nil: Read reports the error, as it does for
// later ones.
func (s *Stream) dial() error {
	if !s.local.Addr().IsUnspecified() || s.local.Port() != 0 {
		if s.local.Port() == 0 {
			// Let connect choose the port, unique for this peer only. Older kernels choose it now.
			_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}
		sa, err := toSockaddr(s.fd, s.local)
		if err != nil {
			return err
		}
		if err := unix.Bind(s.fd, sa); err != nil {
			return kernelError("bind", err)
		}
	}
	sa, err := toSockaddr(s.fd, s.remote)
	if err != nil {
		return err
	}
	process.RaceSend() // for the race detector, which does not see raw system calls
	switch err := unix.Connect(s.fd, sa); {
	case err == nil, errors.Is(err, unix.EINPROGRESS):
	case errors.Is(err, unix.ECONNREFUSED):
		s.err = s.socketError(unix.ECONNREFUSED) // the peer is on this host
		return nil
	default:
		return kernelError("connect", err)
	}
	s.local, err = localAddr(s.fd)
	return err
}

// ID implements link.StreamLink.
func (s *Stream) ID() link.StreamID { return s.id }

// LocalAddr implements link.StreamLink.
func (s *Stream) LocalAddr() netip.AddrPort { return s.local }

// RemoteAddr implements link.StreamLink.
func (s *Stream) RemoteAddr() netip.AddrPort { return s.remote }

// MSS implements link.StreamLink.
func (s *Stream) MSS() int { return s.mss }

// AcceptedAt implements link.StreamLink: the kernel has copied the bytes when a write returns.
func (s *Stream) AcceptedAt() mono.Time { return 0 }

// Connected implements link.StreamLink.
func (s *Stream) Connected(mono.Time) bool {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	return s.isConnected()
}

// isConnected reports whether the stream is or was connected. The first call after the handshake
// calls onConnected. The caller holds the lock of the Net.
func (s *Stream) isConnected() bool {
	if s.connected || s.fd < 0 || s.err != nil {
		return s.connected
	}
	if _, err := unix.Getpeername(s.fd); err != nil {
		return false // not yet, or failed, which Read reports
	}
	if s.local == s.remote {
		// TCP self-connect: without a listener, the kernel chose the remote port as the local one.
		s.err = fmt.Errorf("tcplink: %v to itself: %w", s.remote, link.ErrRefused)
		s.net.markEnded(s.id)
		return false
	}
	s.onConnected()
	return true
}

// onConnected reads the MSS of a connected stream, and sends a FIN that CloseWrite deferred.
func (s *Stream) onConnected() {
	s.connected = true
	// If these fail the stream is broken, which Read reports.
	s.mss, _ = unix.GetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if s.writeClosed {
		_ = s.shutdown()
	}
}

// Read implements link.StreamLink with one recv, which reads as much as fits into b.
func (s *Stream) Read(_ mono.Time, b []byte) (int, error) {
	n := s.net
	n.mu.Lock()
	if s.fd < 0 || len(b) == 0 || s.eof {
		err := s.readEndError()
		n.mu.Unlock()
		return 0, err
	}
	got, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	n.stats.ReadCalls++
	if errno == unix.EAGAIN && s.err == nil {
		n.stats.ReadEmptyCalls++
		n.mu.Unlock()
		return 0, nil
	}
	k, err := s.handleRead(int(got), errno)
	if s.endPending && err == nil && k < len(b) {
		n.markReadable(s.id) // the next Read returns EOF or the error, which epoll does not report again
	}
	n.mu.Unlock()
	return k, err
}

// handleRead handles the result of a recv other than EAGAIN, and returns the results for Read.
func (s *Stream) handleRead(got int, errno unix.Errno) (int, error) {
	n := s.net
	process.RaceReceived() // for the race detector, which does not see raw system calls
	switch {
	case errno == 0 && got > 0:
		if !s.connected {
			s.onConnected()
		}
		n.stats.ReadBytes += uint64(got)
		return got, nil
	case s.err != nil: // a write failed, and all bytes before are read
	case errno == 0:
		s.eof = true
		switch {
		case s.writeClosed: // both directions have ended
			n.closeStream(s, withoutReset)
		case s.errorPending:
			n.markReadable(s.id) // the next Read returns the error
		}
		return 0, io.EOF
	case errno == unix.EINTR:
		return 0, nil
	default:
		s.err = s.socketError(errno)
	}
	return 0, s.endError()
}

// endError returns the error or io.EOF of a stream that has ended; else nil. It closes the
// socket of a broken stream.
func (s *Stream) endError() error {
	switch {
	case s.err != nil:
		if s.fd >= 0 {
			s.net.closeStream(s, withReset)
		}
		return s.err
	case s.eof:
		return io.EOF
	}
	return nil
}

// readEndError returns the error of a Read that needs no recv: into an empty buffer, or after
// the end. After EOF it checks SO_ERROR, since a recv does not report a reset then.
func (s *Stream) readEndError() error {
	if s.fd >= 0 && s.eof && s.err == nil {
		if errno, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno != 0 {
			s.err = s.socketError(unix.Errno(errno))
		}
	}
	return s.endError()
}

// discardUnread discards received bytes: if any were unread, close would reset the stream.
func (s *Stream) discardUnread() {
	const maxBytes = 1 << 30
	syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), 0, maxBytes, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
}

// CloseWrite implements link.StreamLink. It sends a FIN, or lets onConnected send it; the socket
// is closed when the peer's direction has ended too.
func (s *Stream) CloseWrite(mono.Time) error {
	n := s.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.writeClosed:
		return nil
	}
	s.writeClosed = true
	if s.eof { // both directions have ended
		n.closeStream(s, withoutReset)
		return nil
	}
	if !s.isConnected() {
		return nil // onConnected sends the FIN
	}
	return s.shutdown()
}

// shutdown sends the FIN.
func (s *Stream) shutdown() error {
	process.RaceSend() // for the race detector, which does not see raw system calls
	if err := unix.Shutdown(s.fd, unix.SHUT_WR); err != nil {
		s.err = s.socketError(errnoOf(err))
		return s.err
	}
	return nil
}

// Abort implements link.StreamLink. It resets the connection if the socket is open. If the socket
// is closed because the stream broke, it returns that error. Later calls return ErrReset.
func (s *Stream) Abort(mono.Time) error {
	n := s.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case s.fd >= 0:
		n.closeStream(s, withReset)
	case s.err != nil:
		return s.err
	}
	s.err = link.ErrReset
	return nil
}
