package udpwire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendControl tells a socket what of the IP header a datagram wants.
func sendControl(d *datagram) []byte {
	if d.dst.Addr().Is4() {
		return append(control(unix.IPPROTO_IP, unix.IP_TOS, d.tclass), control(unix.IPPROTO_IP, unix.IP_TTL, d.hopLimit)...)
	}
	return append(control(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, d.tclass), control(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, d.hopLimit)...)
}

// control is a control message that says a number.
func control(level, kind int, value uint8) []byte {
	const size = 4
	b := make([]byte, unix.CmsgSpace(size))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = int32(level), int32(kind)
	h.SetLen(unix.CmsgLen(size))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], uint32(value))
	return b
}

// told is what a socket says of a datagram beside its payload.
type told struct {
	seen     time.Time
	hopLimit *uint8
	tclass   *uint8
	flow     *uint32 // of IPv6: traffic class and flow label
	drops    uint32  // datagrams that the socket had no room for, ever
}

// readControl reads control messages. The time is on Go's clock.
func readControl(b []byte) (t told, err error) {
	t.seen = time.Now()
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return t, err
	}
	for _, m := range messages {
		t.take(int(m.Header.Level), int(m.Header.Type), m.Data)
	}
	return t, nil
}

func (t *told) take(level, kind int, data []byte) {
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
		t.stamp(data)
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
			t.flow = new(binary.BigEndian.Uint32(data))
		}
	}
}

const sizeofTimespec = int(unsafe.Sizeof(unix.Timespec{}))

// stamp takes when the kernel saw a datagram.
func (t *told) stamp(data []byte) {
	if len(data) < sizeofTimespec {
		return
	}
	var at time.Time
	if sizeofTimespec == 8 {
		at = time.Unix(int64(int32(binary.NativeEndian.Uint32(data))), int64(int32(binary.NativeEndian.Uint32(data[4:]))))
	} else {
		at = time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
	}
	// The difference is of wall clocks; the result is monotonic again.
	if age := t.seen.Round(0).Sub(at); age > 0 {
		t.seen = t.seen.Add(-age)
	}
}

// errUntold is what is wrong about a datagram of which the kernel does not say all that it
// was asked to: nothing may be made up in its place.
var errUntold = errors.New("the kernel did not tell hop limit, traffic class and flow label of a datagram")

// came is a datagram that has come to a socket.
func came(from unix.Sockaddr, at netip.AddrPort, t *told, payload []byte) (*datagram, error) {
	d := &datagram{dst: at, payload: payload}
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		d.src = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		d.src = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		// The kernel leaves the flow information out where it is 0.
		if t.flow != nil {
			d.flowLabel = *t.flow & 0xfffff
		}
	default:
		return nil, errors.New("a datagram from no address of IP")
	}
	if t.hopLimit == nil || t.tclass == nil {
		return nil, errUntold
	}
	d.hopLimit, d.tclass = *t.hopLimit, *t.tclass
	return d, nil
}
