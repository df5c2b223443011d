package udplink

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's struct mmsghdr: sendmmsg and recvmmsg take arrays of
// it.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// sockaddr has room for a socket address of either family.
type sockaddr = unix.RawSockaddrInet6

// putSockaddr encodes to into sa and returns its length.
func putSockaddr(sa *sockaddr, to netip.AddrPort, flowLabel uint32, scope int) uint32 {
	if to.Addr().Is4() {
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*s4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.Addr().As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s4.Port))[:], to.Port())
		return unix.SizeofSockaddrInet4
	}
	*sa = sockaddr{Family: unix.AF_INET6, Addr: to.Addr().As16(), Scope_id: uint32(scope)}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], to.Port())
	binary.BigEndian.PutUint32((*[4]byte)(unsafe.Pointer(&sa.Flowinfo))[:], flowLabel&flowLabelMask)
	return unix.SizeofSockaddrInet6
}

// getSockaddr decodes a socket address.
func getSockaddr(sa *sockaddr) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port)
}

const flowLabelMask = 1<<20 - 1

// controlSpace has room for all control messages in use: segment size, traffic class, hop
// limit and packet info.
const controlSpace = 160

// Alignment of control messages: their data is padded to at least a word.
const (
	cmsgAlign = int(unsafe.Sizeof(uintptr(0)))
	minData   = cmsgAlign
	// cmsgHeader is the offset of the data of a control message.
	cmsgHeader = (unix.SizeofCmsghdr + cmsgAlign - 1) &^ (cmsgAlign - 1)
)

// control is an aligned buffer of control messages.
type control struct {
	_ [0]uint64
	b [controlSpace]byte
}

// add appends a control message at offset n. It returns its size bytes of zeroed data, and
// the offset after it.
func (c *control) add(n, level, typ, size int) (data []byte, next int) {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.b[n]))
	h.Level, h.Type = int32(level), int32(typ)
	h.SetLen(unix.CmsgLen(size))
	data = c.b[n+cmsgHeader:][:size]
	clear(data)
	return data, n + unix.CmsgSpace(size)
}

func (c *control) addInt(n, level, typ, value int) (next int) {
	data, next := c.add(n, level, typ, 4)
	binary.NativeEndian.PutUint32(data, uint32(value))
	return next
}
