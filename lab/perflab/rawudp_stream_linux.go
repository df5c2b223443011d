package perflab

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawUDPStream measures the goodput of bare UDP from tx to rx: one sendmsg with UDP_SEGMENT per
// batch, one recvmsg with UDP_GRO per super-packet.
func RawUDPStream(tx, rx RawEndpoint, cfg RawUDPStreamConfig) (RawUDPStreamResult, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return RawUDPStreamResult{}, err
	}
	if size := cfg.BatchSegments * cfg.SegmentBytes; size > maxUDPPayload || cfg.BatchSegments > 64 {
		return RawUDPStreamResult{}, fmt.Errorf("raw stream: %d segments of %d bytes do not fit one super-packet", cfg.BatchSegments, cfg.SegmentBytes)
	}
	cfg.cpus = [2]int{tx.CPU, rx.CPU}
	st, sr, err := openPair(tx, rx, false)
	if err != nil {
		return RawUDPStreamResult{}, err
	}
	defer st.close()
	defer sr.close()
	if err := unix.SetsockoptInt(sr.fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return RawUDPStreamResult{}, fmt.Errorf("raw stream: UDP_GRO: %w", err)
	}
	return runStream(cfg, newRawSender(st, cfg), newRawReceiver(sr, cfg))
}

type rawSender struct {
	s       *udpSocket
	bufs    [][]byte
	iov     unix.Iovec
	control [24]byte
	msg     unix.Msghdr
}

// newRawSender returns a sender of batches of segments, each one sendmsg: UDP_SEGMENT makes the
// kernel divide a batch into datagrams.
func newRawSender(s *udpSocket, cfg RawUDPStreamConfig) *rawSender {
	t := &rawSender{s: s}
	all := make([]byte, cfg.BatchSegments*cfg.SegmentBytes)
	for off := 0; off < len(all); off += cfg.SegmentBytes {
		t.bufs = append(t.bufs, all[off:off+cfg.SegmentBytes])
	}
	t.iov.Base = &all[0]
	t.iov.SetLen(len(all))
	t.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&s.peer)), Namelen: s.peerSize, Iov: &t.iov}
	t.msg.SetIovlen(1)
	if cfg.BatchSegments > 1 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&t.control))
		h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(t.control[unix.CmsgLen(0):], uint16(cfg.SegmentBytes))
		t.msg.Control = &t.control[0]
		t.msg.SetControllen(unix.CmsgSpace(2))
	}
	return t
}

func (t *rawSender) buffers() [][]byte { return t.bufs }

// flush implements batchSender: a batch is sent as a whole, or not if the socket is full.
func (t *rawSender) flush() (bool, error) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(t.s.fd), uintptr(unsafe.Pointer(&t.msg)), 0, 0, 0, 0)
	switch errno {
	case 0:
		return true, nil
	case unix.EAGAIN, unix.ENOBUFS:
		return false, nil
	}
	return false, fmt.Errorf("raw stream: sendmsg: %w", errno)
}

type rawReceiver struct {
	s       *udpSocket
	segment int
	buf     []byte
	iov     unix.Iovec
	control [64]byte
	msg     unix.Msghdr
}

// newRawReceiver returns a receiver of datagrams that UDP_GRO has joined.
func newRawReceiver(s *udpSocket, cfg RawUDPStreamConfig) *rawReceiver {
	r := &rawReceiver{s: s, segment: cfg.SegmentBytes, buf: make([]byte, 1<<16)}
	r.iov.Base = &r.buf[0]
	r.iov.SetLen(len(r.buf))
	r.msg = unix.Msghdr{Iov: &r.iov, Control: &r.control[0]}
	r.msg.SetIovlen(1)
	return r
}

// receive implements batchReceiver: one recvmsg, whose data it divides into segments.
func (r *rawReceiver) receive(o *segmentReader) (int, error) {
	r.msg.SetControllen(len(r.control))
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(r.s.fd), uintptr(unsafe.Pointer(&r.msg)), 0, 0, 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN:
		return 0, nil
	default:
		return 0, fmt.Errorf("raw stream: recvmsg: %w", errno)
	}
	segments := 0
	for b := r.buf[:n]; len(b) > 0; segments++ {
		size := min(r.segment, len(b))
		o.read(b[:size])
		b = b[size:]
	}
	return segments, nil
}
