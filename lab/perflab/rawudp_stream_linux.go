package perflab

import (
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawUDPStreamResult is the result of a stream.
type RawUDPStreamResult struct {
	Elapsed  time.Duration // from the first send to the last arrival
	Sent     uint64        // segments that the network took
	Received uint64        // segments that arrived intact
	Corrupt  uint64        // segments whose CRC or length was wrong
	Bytes    uint64        // UDP payload received
}

// Gbps is the goodput in gigabits of UDP payload per second.
func (r RawUDPStreamResult) Gbps() float64 {
	return float64(r.Bytes) * 8 / float64(r.Elapsed.Nanoseconds())
}

// RawUDPStream measures the goodput of plain UDP from tx to rx: one sendmsg with UDP_SEGMENT per
// batch, one recvmsg with UDP_GRO per super-packet.
func RawUDPStream(tx, rx RawEndpoint, cfg RawStreamConfig) (RawUDPStreamResult, error) {
	const block = false
	sendSocket, recvSocket, err := openUDPPair(tx, rx, block)
	if err != nil {
		return RawUDPStreamResult{}, err
	}
	defer sendSocket.close()
	defer recvSocket.close()
	if err := recvSocket.setOption("UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return RawUDPStreamResult{}, err
	}
	return runStream(cfg, [2]int{tx.CPU, rx.CPU}, newRawSender(sendSocket, cfg), newRawReceiver(recvSocket, cfg))
}

type rawSender struct {
	s        socket
	segments [][]byte // of the batch, adjacent in memory
	iov      unix.Iovec
	control  [24]byte
	msg      unix.Msghdr
}

// newRawSender returns a sender that sends a batch of segments by one sendmsg: UDP_SEGMENT makes
// the kernel divide the batch into datagrams.
func newRawSender(s socket, cfg RawStreamConfig) *rawSender {
	t := &rawSender{s: s}
	batch := make([]byte, batchSegments(cfg.Bytes)*cfg.Bytes)
	t.segments = slices.Collect(slices.Chunk(batch, cfg.Bytes))
	t.iov.Base = &batch[0]
	t.iov.SetLen(len(batch))
	t.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(s.peer)), Namelen: s.peerSize, Iov: &t.iov}
	t.msg.SetIovlen(1)
	if len(t.segments) > 1 { // a single segment needs no division
		const sizeBytes = 2 // UDP_SEGMENT has the segment size as a uint16
		h := (*unix.Cmsghdr)(unsafe.Pointer(&t.control))
		h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(sizeBytes))
		binary.NativeEndian.PutUint16(t.control[unix.CmsgLen(0):], uint16(cfg.Bytes))
		t.msg.Control = &t.control[0]
		t.msg.SetControllen(unix.CmsgSpace(sizeBytes))
	}
	return t
}

// buffers implements batchSender.
func (t *rawSender) buffers() [][]byte { return t.segments }

// flush implements batchSender: a batch is sent as a whole, or not if the socket is full.
func (t *rawSender) flush() (bool, error) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(t.s.fd), uintptr(unsafe.Pointer(&t.msg)), 0, 0, 0, 0)
	switch errno {
	case 0:
		return true, nil
	case unix.EAGAIN, unix.ENOBUFS:
		return false, nil
	}
	return false, fmt.Errorf("UDP stream: sendmsg: %w", errno)
}

type rawReceiver struct {
	s            socket
	segmentBytes int
	buf          []byte
	iov          unix.Iovec
	control      [64]byte
	msg          unix.Msghdr
}

// newRawReceiver returns a receiver of datagrams that UDP_GRO has joined. It takes the control
// message with their size, as a device does, but does not read it: the size is always cfg.Bytes.
func newRawReceiver(s socket, cfg RawStreamConfig) *rawReceiver {
	const maxJoined = 1 << 16 // more than UDP_GRO joins
	r := &rawReceiver{s: s, segmentBytes: cfg.Bytes, buf: make([]byte, maxJoined)}
	r.iov.Base = &r.buf[0]
	r.iov.SetLen(len(r.buf))
	r.msg = unix.Msghdr{Iov: &r.iov, Control: &r.control[0]}
	r.msg.SetIovlen(1)
	return r
}

// receive implements batchReceiver: one recvmsg, whose data it divides into segments. It returns
// their number.
func (r *rawReceiver) receive(to *segmentReader) (int, error) {
	r.msg.SetControllen(len(r.control))
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(r.s.fd), uintptr(unsafe.Pointer(&r.msg)), 0, 0, 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN:
		return 0, nil
	default:
		return 0, fmt.Errorf("UDP stream: recvmsg: %w", errno)
	}
	segments := 0
	for b := r.buf[:n]; len(b) > 0; segments++ {
		size := min(r.segmentBytes, len(b))
		to.read(b[:size])
		b = b[size:]
	}
	return segments, nil
}
