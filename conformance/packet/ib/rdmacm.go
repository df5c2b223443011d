package ib

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Port spaces of rdma_cm, as in service IDs.
const (
	PortSpaceTCP = 0x06
	PortSpaceUDP = 0x11
	PortSpaceIB  = 0x3f
)

// UDQKey is the Q_Key of rdma_cm datagram services.
const UDQKey = 0x01234567

// ServiceID returns the service ID of rdma_cm for a port of a port space.
func ServiceID(space uint8, port uint16) uint64 {
	return 1<<24 | uint64(space)<<16 | uint64(port)
}

// AddrHeaderLen is the length of an [AddrHeader].
const AddrHeaderLen = 36

// AddrHeader precedes the private data of a REQ and a SIDR_REQ of rdma_cm (annex A11).
type AddrHeader struct {
	Version   uint8 // 0
	IPVersion uint8 // 4 or 6; 0 is that of the addresses
	SrcPort   uint16
	Src, Dst  netip.Addr
}

// Append appends the header, after which the application's private data follows. An IPVersion
// of 0 stands for that of Src.
func (h AddrHeader) Append(b []byte) []byte {
	v := h.IPVersion
	if v == 0 {
		v = 4
		if h.Src.Is6() && !h.Src.Is4In6() {
			v = 6
		}
	}
	b = append(b, h.Version, v<<4)
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	for _, a := range []netip.Addr{h.Src, h.Dst} {
		var field [16]byte
		if a = a.Unmap(); a.Is4() {
			a4 := a.As4()
			copy(field[12:], a4[:])
		} else if a.Is6() {
			field = a.As16()
		}
		b = append(b, field[:]...)
	}
	return b
}

// ParseAddrHeader parses the IP header of rdma_cm at the start of the private data, and
// returns the application's data after it.
func ParseAddrHeader(b []byte) (h AddrHeader, user []byte, err error) {
	if len(b) < AddrHeaderLen {
		return h, b, fmt.Errorf("private data: %w: %d bytes, the address header has %d", packet.ErrShort, len(b), AddrHeaderLen)
	}
	h = AddrHeader{Version: b[0], IPVersion: b[1] >> 4, SrcPort: binary.BigEndian.Uint16(b[2:])}
	switch h.IPVersion {
	case 4:
		h.Src, h.Dst = netip.AddrFrom4([4]byte(b[16:])), netip.AddrFrom4([4]byte(b[32:]))
	case 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(b[4:])), netip.AddrFrom16([16]byte(b[20:]))
	default:
		return h, b[AddrHeaderLen:], fmt.Errorf("private data: IP version %d is neither 4 nor 6", h.IPVersion)
	}
	return h, b[AddrHeaderLen:], nil
}
