package wire

import "net/netip"

// LIDNone is the value of LID fields in RoCEv2, which receivers ignore.
const LIDNone uint16 = 0xFFFF

const pathLen = 44

// CMPath is a path of a connection. Local is the sender of the message.
type CMPath struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID GID
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits: local ACK timeout, a code for CMTimeout
}

// fields encodes or decodes the path of a REQ that begins at the offset at. bitField takes the
// offset of a 32-bit word, the lowest bit and the width.
func (p *CMPath) fields(c bodyCodec, at int) {
	p.commonFields(c, at)
	bitField(c, at+36, 0, 6, &p.Rate)
	bitField(c, at+40, 24, 8, &p.TrafficClass)
	bitField(c, at+40, 16, 8, &p.HopLimit)
}

// fieldsOfLAP encodes or decodes the path of a LAP that begins at the offset at. Rate, TrafficClass
// and HopLimit have other places than in a REQ. bitField takes a word's offset, lowest bit, width.
func (p *CMPath) fieldsOfLAP(c bodyCodec, at int) {
	p.commonFields(c, at)
	bitField(c, at+36, 0, 8, &p.TrafficClass)
	bitField(c, at+40, 24, 8, &p.HopLimit)
	bitField(c, at+40, 16, 6, &p.Rate)
}

// commonFields encodes or decodes the fields that have the same place in REQ and LAP. bitField
// takes the offset of a 32-bit word, the lowest bit and the width.
func (p *CMPath) commonFields(c bodyCodec, at int) {
	bitField(c, at, 16, 16, &p.LocalLID)
	bitField(c, at, 0, 16, &p.RemoteLID)
	c.bytes(at+4, p.LocalGID[:])
	c.bytes(at+20, p.RemoteGID[:])
	bitField(c, at+36, 12, 20, &p.FlowLabel)
	bitField(c, at+40, 12, 4, &p.SL)
	c.flag(at+40, 11, &p.SubnetLocal)
	bitField(c, at+40, 3, 5, &p.AckTimeout)
}

// GID is a port address. On RoCEv2 it is an IP address, IPv4 in its IPv4-mapped form.
type GID [16]byte

// GIDOf returns the GID of an IP address; the zero GID for the zero Addr.
func GIDOf(a netip.Addr) GID {
	if !a.IsValid() {
		return GID{}
	}
	return a.As16()
}

// Addr returns the IP address of g.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String prints g as an IP address.
func (g GID) String() string { return g.Addr().String() }
