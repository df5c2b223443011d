package udplink

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

const (
	// maxMessages bounds one sendmmsg.
	maxMessages = 64
	// maxIovecs bounds the iovecs of one sendmmsg.
	maxIovecs = 1024
	// maxSegments is UDP_MAX_SEGMENTS of all kernels; newer ones allow 128.
	maxSegments = 64
	// maxCallBytes bounds the payload of one system call, and with it the time in which the
	// runtime cannot preempt the goroutine, to tens of microseconds.
	maxCallBytes = 256 << 10
	// maxCopyBytes is the largest payload that is cheaper to copy than to pass in an iovec.
	maxCopyBytes = 512
)

// sender packs datagrams into messages for sendmmsg. It makes no system calls.
type sender struct {
	v6, wildcard bool
	gso          bool
	ifi          int
	tclass       uint8 // default of the socket, as hopLimit
	hopLimit     uint8
	maxSize      int // longest payload of a datagram
	maxSuper     int // longest payload of a super-packet
	patchIPID    func([]byte, uint16)

	single    message // for datagrams sent without a batch
	singleRun int     // consecutive single datagrams with the same header
	used      int     // number of packed messages
	headers   [maxMessages]mmsghdr
	messages  [maxMessages]message
	iovecs    [maxIovecs]unix.Iovec
	copyBuf   []byte // copies of small payloads of one batch
}

// message is the memory that one mmsghdr refers to. Address and control messages are kept
// between batches and encoded again only if the header differs.
type message struct {
	header     header
	addr       sockaddr
	addrLen    uint32
	control    control
	controlLen int
	first      int // index of its first datagram
	segments   int
	bytes      int
}

// init prepares the message headers for sends from a socket. ifi is the index of its interface.
func (s *sender) init(cfg Config, info Info, ifi int) {
	s.v6 = info.Local.Addr().Is6()
	s.wildcard = info.Local.Addr().IsUnspecified()
	s.gso, s.ifi = info.GSO, ifi
	s.tclass, s.hopLimit = cfg.TClass, info.HopLimit
	s.maxSize = info.MTU - headerLen(s.v6)
	s.maxSuper = maxIPv4 - headerLen(s.v6)
	if s.v6 {
		s.maxSuper = maxIPv6 - headerLen(s.v6)
	} else {
		s.patchIPID = cfg.PatchIPID
	}
	s.copyBuf = make([]byte, 0, maxCallBytes+maxSegments*maxCopyBytes) // the last message may exceed maxCallBytes
	for i := range s.headers {
		h, m := &s.headers[i].hdr, &s.messages[i]
		h.Name = (*byte)(unsafe.Pointer(&m.addr))
		h.Control = &m.control.b[0]
	}
}

// pack fills messages with as many of ds as fit, in order, and returns how many; 0 if ds[0] fails
// checkSendable. singles is how many of ds, from the first on, must not share a message by GSO.
func (s *sender) pack(ds []link.Datagram, singles int) int {
	s.used = 0
	s.copyBuf = s.copyBuf[:0]
	i, iov, bytes := 0, 0, 0
	for i < len(ds) && s.used < maxMessages && iov < maxIovecs && bytes < maxCallBytes {
		d := &ds[i]
		if s.checkSendable(d) != 0 {
			break
		}
		h := s.headerOf(d)
		run, size := 1, len(d.Payload)
		if s.gso && i >= singles && i+1 < len(ds) {
			run, size = s.superPacketRun(ds[i:min(len(ds), i+maxSegments, i+maxIovecs-iov)])
			if run > 1 {
				h.segment = uint16(len(d.Payload))
			}
		}
		m, hdr := &s.messages[s.used], &s.headers[s.used].hdr
		if m.header != h {
			s.encode(m, h)
			hdr.Namelen = m.addrLen
			hdr.SetControllen(m.controlLen)
		}
		m.first, m.segments, m.bytes = i, run, size
		if run > 1 {
			// The kernel numbers segments in the IPv4 identification, which ICRCs cover.
			s.patchIPIDs(ds, m, patch)
		}
		n := s.gather(s.iovecs[iov:], ds[i:i+run])
		hdr.Iov = &s.iovecs[iov]
		hdr.SetIovlen(n)
		s.used++
		i, iov, bytes = i+run, iov+n, bytes+size
	}
	return i
}

// checkSendable returns why d must not be passed to the kernel, as the errno that is counted for
// it; 0 if d may be passed.
func (s *sender) checkSendable(d *link.Datagram) unix.Errno {
	if len(d.Payload) > s.maxSize {
		return unix.EMSGSIZE
	}
	if to := d.Dst.Addr(); !to.IsValid() || (to.Is6() && !to.Is4In6()) != s.v6 {
		return unix.EAFNOSUPPORT
	}
	return 0
}

// encodeSingle encodes the address of d in s.single, and counts consecutive datagrams with equal
// headers in s.singleRun. It returns false if d cannot be sent, or needs control messages.
func (s *sender) encodeSingle(d *link.Datagram) bool {
	if s.checkSendable(d) != 0 {
		return false
	}
	if h := s.headerOf(d); s.single.header != h {
		s.encode(&s.single, h)
		s.singleRun = 0
	}
	s.singleRun++
	return s.single.controlLen == 0
}

// superPacketRun returns how many of ds, from the first on, fit into one super-packet, and their
// total size: they have equal headers, and equal lengths except for a shorter last one.
func (s *sender) superPacketRun(ds []link.Datagram) (run, size int) {
	first := &ds[0]
	segment := len(first.Payload)
	run, size = 1, segment
	for run < len(ds) {
		d := &ds[run]
		n := len(d.Payload)
		if n > segment || n == 0 || size+n > s.maxSuper || d.TClass != first.TClass || d.HopLimit != first.HopLimit ||
			d.Dst != first.Dst || d.FlowLabel != first.FlowLabel || (s.wildcard && d.Src != first.Src) {
			break
		}
		run++
		size += n
		if n < segment {
			break
		}
	}
	return run, size
}

// gather points iovecs at the payloads of a message and returns how many it needed. Adjacent
// payloads share an iovec. Small payloads are copied into one buffer, which is cheaper than an
// iovec for each, unless the first two are adjacent: then most likely all are.
func (s *sender) gather(iovecs []unix.Iovec, ds []link.Datagram) int {
	if len(ds) > 1 && len(ds[0].Payload) <= maxCopyBytes && !adjacent(ds[0].Payload, ds[1].Payload) {
		start := len(s.copyBuf)
		for i := range ds {
			s.copyBuf = append(s.copyBuf, ds[i].Payload...)
		}
		iovecs[0].Base = &s.copyBuf[start]
		iovecs[0].SetLen(len(s.copyBuf) - start)
		return 1
	}
	n := 0
	for i := range ds {
		p := ds[i].Payload
		if i > 0 && adjacent(ds[i-1].Payload, p) {
			iovecs[n-1].SetLen(int(iovecs[n-1].Len) + len(p))
			continue
		}
		iovecs[n].Base = unsafe.SliceData(p)
		iovecs[n].SetLen(len(p))
		n++
	}
	return n
}

// adjacent reports whether b begins where a ends.
func adjacent(a, b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(a)))+uintptr(len(a)) == uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// Values of patching in patchIPIDs: correct the ICRCs, or undo it.
const patch, unpatch = true, false

// patchIPIDs corrects the ICRCs in the payloads of super-packet m for the IPv4 identifications 0,
// 1, 2, … of its segments, and sets IPID. The first segment has identification 0, as a single
// datagram has, and needs no patch. A second call, with patching false, undoes both.
func (s *sender) patchIPIDs(ds []link.Datagram, m *message, patching bool) {
	if s.patchIPID == nil {
		return
	}
	for k := 1; k < m.segments; k++ {
		d := &ds[m.first+k]
		s.patchIPID(d.Payload, uint16(k))
		d.IPID = link.IPIDUnknown
		if patching {
			d.IPID = uint32(k)
		}
	}
}

// unpatchFrom undoes patchIPIDs for the messages from i on, which were not sent.
func (s *sender) unpatchFrom(ds []link.Datagram, i int) {
	for ; i < s.used; i++ {
		s.patchIPIDs(ds, &s.messages[i], unpatch)
	}
}
