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

// socket is a UDP socket bound to one of the wire's addresses, or to a group.
type socket struct {
	at   netip.AddrPort
	file *os.File // owns the socket
	conn syscall.RawConn
	// checksumOff: the socket sends no UDP checksums.
	checksumOff bool
}

// option is a socket option with its name in linux headers.
type option struct {
	level, name, value int
	label              string
}

// ipv6FlowInfo is IPV6_FLOWINFO of linux/in6.h, missing in package unix.
const ipv6FlowInfo = 11

// options returns the socket options with which the kernel sends exactly the headers that
// datagram.packet predicts, and reports those received. index is the interface for multicast.
func options(ipv6 bool, index int) []option {
	all := []option{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS"},
		{unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, "SO_RXQ_OVFL"},
	}
	if ipv6 {
		return append(all,
			option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, "IPV6_RECVHOPLIMIT"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS"},
			option{unix.IPPROTO_IPV6, ipv6FlowInfo, 1, "IPV6_FLOWINFO"},
			option{unix.IPPROTO_IPV6, unix.IPV6_AUTOFLOWLABEL, 0, "IPV6_AUTOFLOWLABEL"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER"},
			option{unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1, "IPV6_DONTFRAG"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index, "IPV6_MULTICAST_IF"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0, "IPV6_MULTICAST_LOOP"},
			// RoCEv2 packets have no UDP checksum; IPv6 sockets drop them by default.
			option{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX"})
	}
	return append(all,
		option{unix.IPPROTO_IP, unix.IP_RECVTTL, 1, "IP_RECVTTL"},
		option{unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS"},
		// DF set gives identification 0 on an unconnected socket.
		option{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "IP_MTU_DISCOVER"},
		option{unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0, "IP_MULTICAST_LOOP"})
}

// bind creates a UDP socket bound to an address. index is that of its interface.
func bind(at netip.AddrPort, index int) (*socket, error) {
	ipv6 := at.Addr().Is6()
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{at: at}
	if err := s.configure(fd, ipv6, index); err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.file, s.conn, err = newFile(fd, "udp:"+at.String())
	return s, err
}

// newFile returns a file that owns a socket, and its raw connection. It closes the socket on error.
func newFile(fd int, name string) (*os.File, syscall.RawConn, error) {
	file := os.NewFile(uintptr(fd), name)
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
	}
	return file, conn, err
}

// setOptions sets socket options, and enlarges the receive buffer up to the kernel's limit.
func setOptions(fd int, options []option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("%s: %w", o.label, err)
		}
	}
	const size = 8 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
		return fmt.Errorf("SO_RCVBUF: %w", err)
	}
	return nil
}

// configure sets the options of a new socket, and binds it to s.at. index is that of the interface.
func (s *socket) configure(fd int, ipv6 bool, index int) error {
	if err := setOptions(fd, options(ipv6, index)); err != nil {
		return err
	}
	if !ipv6 {
		if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)}); err != nil {
			return fmt.Errorf("IP_MULTICAST_IF: %w", err)
		}
	}
	switch err := unix.Bind(fd, sockaddr(s.at, index)); {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("another program has UDP port %d at %v, or a soft-RoCE device of this host's kernel has it everywhere: %w", s.at.Port(), s.at.Addr(), err)
	case err != nil:
		return fmt.Errorf("bind to %v: %w", s.at, err)
	}
	return nil
}

// sockaddr converts an address; link-local and multicast ones of IPv6 get the index as their zone.
func sockaddr(a netip.AddrPort, index int) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	to := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if a.Addr().IsLinkLocalUnicast() || a.Addr().IsMulticast() {
		to.ZoneId = uint32(index)
	}
	return to
}

// join joins the multicast group that the socket is bound to, at the interface with this index.
func (s *socket) join(index int) (err error) {
	group := s.at.Addr()
	connErr := s.conn.Control(func(fd uintptr) {
		if group.Is4() {
			err = unix.SetsockoptIPMreqn(int(fd), unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
			return
		}
		err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
	})
	return errors.Join(connErr, err)
}

// send sends a datagram from the socket's address. index is that of the interface, the zone of
// link-local addresses.
func (s *socket) send(d *datagram, index int) (err error) {
	if err := s.setChecksum(d.hasChecksum); err != nil {
		return err
	}
	level, tclass, hopLimit := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if d.dst.Addr().Is6() {
		level, tclass, hopLimit = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	control := append(controlMessage(level, tclass, d.tclass), controlMessage(level, hopLimit, d.hopLimit)...)
	connErr := s.conn.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), d.payload, control, sockaddr(d.dst, index), 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(connErr, err)
}

// setChecksum switches UDP checksums of sent datagrams on or off.
func (s *socket) setChecksum(wanted bool) (err error) {
	off := !wanted
	if s.checksumOff == off {
		return nil
	}
	level, name, value := unix.SOL_SOCKET, unix.SO_NO_CHECK, 0
	if s.at.Addr().Is6() {
		level, name = unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX
	}
	if off {
		value = 1
	}
	connErr := s.conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) })
	if err = errors.Join(connErr, err); err != nil {
		return fmt.Errorf("set UDP checksum option: %w", err)
	}
	s.checksumOff = off
	return nil
}

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
		w.addDropped(uint64(t.drops - drops)) // since the previous datagram
		w.add(a)
		drops = t.drops
	}
}

// receiveMessage receives a message with its control messages by recvmsg(2). It blocks, and
// returns an error that wraps os.ErrClosed once the socket is closed.
func receiveMessage(conn syscall.RawConn, buf, control []byte) (n, controlLen, flags int, from unix.Sockaddr, err error) {
	connErr := conn.Read(func(fd uintptr) bool {
		n, controlLen, flags, from, err = unix.Recvmsg(int(fd), buf, control, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	if connErr != nil {
		err = fmt.Errorf("%w: %w", os.ErrClosed, connErr)
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

// controlMessage returns a control message whose data is value as a C int.
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
	number := func() *uint8 { // most are a C int, some a byte
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

// errMissingAncillary is the error of a datagram without the requested ancillary data. The wire
// must not invent these fields.
var errMissingAncillary = errors.New("the kernel did not report hop limit and traffic class of a datagram")

// newReceived returns the datagram that a socket with a local address received, with the header
// fields that its control messages report.
func newReceived(from unix.Sockaddr, local netip.AddrPort, t *ancillary, payload []byte) (*datagram, error) {
	d := &datagram{dst: local, payload: payload}
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
