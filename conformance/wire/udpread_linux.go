package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// readLoop reads datagrams from a socket until it is closed.
func (w *UDP) readLoop(s *socket) {
	buf, oob := make([]byte, maxUDPLen), make([]byte, 512)
	var drops uint32
	for {
		n, oobn, flags, from, err := receiveMessage(s.conn, buf, oob)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			continue // an ICMP error of an earlier send
		}
		t, err := parseControl(oob[:oobn])
		d, readErr := newReceived(from, s.at, &t, buf[:n])
		err = cmp.Or(err, readErr)
		if flags&unix.MSG_CTRUNC != 0 {
			err = errMissingAncillary
		}
		a := arrival{seen: t.seen, err: err}
		if err == nil {
			a.Packet = w.rebuildPacket(d)
		}
		w.addDropped(uint64(t.drops - drops)) // before this datagram
		w.add(a)
		drops = t.drops
	}
}

// receiveMessage receives a message with its control messages by recvmsg(2). It blocks, and
// returns an error that wraps os.ErrClosed once the socket is closed.
func receiveMessage(conn syscall.RawConn, buf, control []byte) (n, controlLen, flags int, from unix.Sockaddr, err error) {
	cerr := conn.Read(func(fd uintptr) bool {
		n, controlLen, flags, from, err = unix.Recvmsg(int(fd), buf, control, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	if cerr != nil {
		err = fmt.Errorf("%w: %w", os.ErrClosed, cerr)
	}
	return n, controlLen, flags, from, err
}

// rebuildPacket returns the IP packet of a datagram. Sockets do not report the identification and
// DF of IPv4: they are those of cfg.LookupIPv4ID, or defaults.
func (w *UDP) rebuildPacket(d *datagram) []byte {
	p := d.packet()
	if d.dst.Addr().Is6() || w.cfg.LookupIPv4ID == nil {
		return p
	}
	id, df, ok := w.cfg.LookupIPv4ID(p)
	if !ok {
		return p
	}
	binary.BigEndian.PutUint16(p[4:], id)
	if !df {
		p[6] &^= 0x40 // DF
	}
	p[10], p[11] = 0, 0 // the header checksum
	binary.BigEndian.PutUint16(p[10:], packet.Checksum(p[:20]))
	return p
}

// controlMessage returns a control message with value as an int.
func controlMessage(level, kind int, value uint8) []byte {
	const size = 4
	b := make([]byte, unix.CmsgSpace(size))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = int32(level), int32(kind)
	h.SetLen(unix.CmsgLen(size))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], uint32(value))
	return b
}

// ancillary is the ancillary data of a received datagram or frame.
type ancillary struct {
	seen     time.Time
	hopLimit *uint8
	tclass   *uint8
	flowInfo *uint32 // IPv6 traffic class and flow label
	drops    uint32  // total of datagrams dropped by the socket
	// partialChecksum: the sender has left the checksum of the frame to its NIC.
	partialChecksum bool
}

// parseControl parses control messages. Without a timestamp among them, the receive time is now.
func parseControl(b []byte) (t ancillary, err error) {
	t.seen = time.Now()
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return t, err
	}
	for _, m := range messages {
		t.parse(int(m.Header.Level), int(m.Header.Type), m.Data)
	}
	return t, nil
}

// parse sets the field of t that a control message is about.
func (t *ancillary) parse(level, kind int, data []byte) {
	number := func() *uint8 {
		if len(data) >= 4 {
			return new(uint8(binary.NativeEndian.Uint32(data)))
		}
		return new(data[0])
	}
	if len(data) == 0 {
		return
	}
	switch [2]int{level, kind} {
	case [2]int{unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS}:
		t.seen = receiveTime(t.seen, data)
	case [2]int{unix.SOL_SOCKET, unix.SO_RXQ_OVFL}:
		if len(data) >= 4 {
			t.drops = binary.NativeEndian.Uint32(data)
		}
	case [2]int{unix.IPPROTO_IP, unix.IP_TTL}, [2]int{unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}:
		t.hopLimit = number()
	case [2]int{unix.IPPROTO_IP, unix.IP_TOS}, [2]int{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}:
		t.tclass = number()
	case [2]int{unix.IPPROTO_IPV6, ipv6FlowInfo}:
		if len(data) >= 4 {
			t.flowInfo = new(binary.BigEndian.Uint32(data))
		}
	case [2]int{unix.SOL_PACKET, unix.PACKET_AUXDATA}:
		t.partialChecksum = len(data) >= 4 && binary.NativeEndian.Uint32(data)&unix.TP_STATUS_CSUMNOTREADY != 0
	}
}

// errMissingAncillary is the error of a datagram without the requested ancillary data.
// The wire must not invent these fields.
var errMissingAncillary = errors.New("the kernel did not report hop limit and traffic class of a datagram")

// newReceived returns the datagram that a socket at address at received, with the header fields
// that are in its control messages t.
func newReceived(from unix.Sockaddr, at netip.AddrPort, t *ancillary, payload []byte) (*datagram, error) {
	d := &datagram{dst: at, payload: payload}
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		d.src = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		d.src = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		// The kernel omits flow information that is 0.
		if t.flowInfo != nil {
			d.flowLabel = *t.flowInfo & 0xfffff
		}
	default:
		return nil, errors.New("a datagram without an IP source address")
	}
	if t.hopLimit == nil || t.tclass == nil {
		return nil, errMissingAncillary
	}
	d.hopLimit, d.tclass = *t.hopLimit, *t.tclass
	return d, nil
}

const sizeofTimespec = int(unsafe.Sizeof(unix.Timespec{}))

// receiveTime returns the monotonic time of a kernel timestamp (SCM_TIMESTAMPNS) that was
// read at now; now if it is malformed or in the future.
func receiveTime(now time.Time, b []byte) time.Time {
	if len(b) < sizeofTimespec {
		return now
	}
	sec, nsec := int64(int32(binary.NativeEndian.Uint32(b))), int64(int32(binary.NativeEndian.Uint32(b[4:])))
	if sizeofTimespec == 16 {
		sec, nsec = int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:]))
	}
	// The age is a difference of wall clocks; the result is monotonic.
	return now.Add(-max(0, now.Round(0).Sub(time.Unix(sec, nsec))))
}
