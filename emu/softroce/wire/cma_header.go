package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// CMAHeaderLen is the length of rdma_cm's header in the private data of a REQ or SIDR_REQ.
const CMAHeaderLen = 36

// CMAHeaderVersion is the only version of CMAHeader.
const CMAHeaderVersion uint8 = 0

// CMAHeader is the header of rdma_cm before the application's private data: the IP addresses
// and the source port of the connection.
type CMAHeader struct {
	Version   uint8
	IPVersion uint8 // 4 bits: 4 or 6
	SrcPort   uint16
	// Src and Dst hold an IPv4 address in the last four bytes, the others zero.
	Src, Dst [16]byte
}

// NewCMAHeader returns the header for two addresses of one family.
func NewCMAHeader(src, dst netip.Addr, srcPort uint16) CMAHeader {
	h := CMAHeader{Version: CMAHeaderVersion, IPVersion: 6, SrcPort: srcPort}
	if src.Is4() {
		h.IPVersion = 4
		s, d := src.As4(), dst.As4()
		copy(h.Src[12:], s[:])
		copy(h.Dst[12:], d[:])
		return h
	}
	h.Src, h.Dst = src.As16(), dst.As16()
	return h
}

// SrcAddr returns the source address, or the zero Addr if the IP version is neither 4 nor 6.
func (h *CMAHeader) SrcAddr() netip.Addr { return h.addr(h.Src) }

// DstAddr returns the destination address, or the zero Addr if the IP version is neither 4 nor 6.
func (h *CMAHeader) DstAddr() netip.Addr { return h.addr(h.Dst) }

// addr returns an address field as an address of h.IPVersion; the zero Addr if that is invalid.
func (h *CMAHeader) addr(b [16]byte) netip.Addr {
	switch h.IPVersion {
	case 4:
		return netip.AddrFrom4([4]byte(b[12:]))
	case 6:
		return netip.AddrFrom16(b)
	}
	return netip.Addr{}
}

// Append appends h in wire order and returns the extended slice.
func (h *CMAHeader) Append(b []byte) []byte {
	b = append(b, h.Version, h.IPVersion<<4)
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	b = append(b, h.Src[:]...)
	return append(b, h.Dst[:]...)
}

// Parse decodes h from the front of b and returns the rest: the application's private data.
func (h *CMAHeader) Parse(b []byte) (rest []byte, err error) {
	if len(b) < CMAHeaderLen {
		return nil, fmt.Errorf("rdma_cm header: %w: %d of %d bytes", ErrShort, len(b), CMAHeaderLen)
	}
	h.Version, h.IPVersion = b[0], b[1]>>4
	h.SrcPort = binary.BigEndian.Uint16(b[2:])
	h.Src, h.Dst = [16]byte(b[4:20]), [16]byte(b[20:36])
	return b[CMAHeaderLen:], nil
}
