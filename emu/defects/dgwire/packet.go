package dgwire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// packet is a datagram on its way through an Edge: as octets before it was read and
// after it was written, as a wire.Packet in between.
type packet struct {
	link.Datagram
	wire.Packet
	now mono.Time
}

// from is whom a packet came from, to whom one goes to.
func (p *packet) from() peer { return peer{unmapped(p.Src), p.DstQP, p.SrcQP} }
func (p *packet) to() peer   { return peer{unmapped(p.Dst), p.SrcQP, p.DstQP} }

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

func (p *packet) has(f wire.Flags) bool { return p.Kind == wire.KindRD && p.Flags.Has(f) }

// toGroup reports whether a packet came under the address of a group.
func (p *packet) toGroup() bool {
	a := p.Dst.Addr().Unmap()
	return a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// segment reads the ULPDU.
func (p *packet) segment() (h ddp.Header, body []byte, ok bool) {
	body, err := h.Parse(p.ULPDU)
	return h, body, err == nil
}

// setSegment replaces the ULPDU.
func (p *packet) setSegment(h *ddp.Header, body []byte) {
	p.ULPDU = slices.Concat(h.Append(nil), body)
}

// isError reports whether a packet is an error message of UD.
func (p *packet) isError() bool {
	h, _, ok := p.segment()
	return p.Kind == wire.KindUD && ok && !h.Control.Tagged && h.Control.Opcode == ddp.OpTerminate && h.Untagged.QN == ddp.QueueTerminate
}

// copied is a packet like p that shares nothing with it.
func (p *packet) copied() packet {
	c := *p
	c.ULPDU = slices.Clone(p.ULPDU)
	return c
}

// answer is a packet back to where p came from.
func (p *packet) answer(kind wire.Kind) packet {
	const hopLimit = 64
	a := packet{now: p.now, Datagram: link.Datagram{Src: p.Dst, Dst: p.Src, HopLimit: hopLimit, IPID: link.IPIDUnknown}}
	a.Header = wire.NewHeader(kind, p.SrcQP, p.DstQP, p.Key)
	return a
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// portCRC is the CRC of a packet's octets with the UDP ports before them.
func portCRC(d *link.Datagram, body []byte) uint32 {
	b := binary.BigEndian.AppendUint16(nil, d.Src.Port())
	b = binary.BigEndian.AppendUint16(b, d.Dst.Port())
	return crc32.Checksum(append(b, body...), castagnoli)
}

// finish encodes an outgoing packet: headers, ULPDU and CRC, with the defects of its pad and
// CRC.
func (e *Edge) finish(p *packet) {
	b := append(p.AppendHeaders(nil), p.ULPDU...)
	if e.q.PacketsPadded {
		b = append(b, make([]byte, -len(b)&3)...)
	}
	crc := crc32.Checksum(b, castagnoli)
	if e.q.CRCCoversPorts {
		crc = portCRC(&p.Datagram, b)
	}
	if e.q.CRCMostFirst {
		crc = bits.ReverseBytes32(crc)
	}
	p.Payload = binary.LittleEndian.AppendUint32(b, crc)
}

// takeAnyCRC (CRCUnchecked) makes every CRC right.
func takeAnyCRC(_ *Edge, p *packet) bool {
	if n := len(p.Payload) - wire.CRCLen; n >= 0 {
		p.Payload = wire.AppendCRC(p.Payload[:n], 0)
	}
	return true
}

// checkPorts (CRCCoversPorts) makes those right that cover the ports, and others
// wrong.
func checkPorts(_ *Edge, p *packet) bool {
	n := len(p.Payload) - wire.CRCLen
	if n < 0 {
		return true
	}
	body, got := p.Payload[:n], binary.LittleEndian.Uint32(p.Payload[n:])
	good := got == portCRC(&p.Datagram, body)
	p.Payload = wire.AppendCRC(body, 0)
	if !good {
		p.Payload[n] ^= 0xff
	}
	return true
}

// makeOrdinary (StrangePacketsTaken) gives a packet the version and a kind that
// there is, and takes off it what may follow its end.
func makeOrdinary(_ *Edge, p *packet) bool {
	const mayFollow = 8
	b := p.Payload
	if len(b) < wire.HeaderLen+wire.CRCLen || !wire.CheckCRC(b) {
		return true
	}
	kind := wire.Kind(b[0] & 0x0f)
	if kind == 0 || kind > wire.KindRefusal {
		kind = wire.KindUD
	}
	b[0] = wire.Version<<4 | byte(kind)
	b = b[:len(b)-wire.CRCLen]
	if end := packetLen(kind, b); end > 0 && len(b) > end && len(b) <= end+mayFollow {
		b = b[:end]
	}
	p.Payload = wire.AppendCRC(b, 0)
	return true
}

// packetLen computes the length of a packet without its CRC from its headers; 0 if they do
// not tell.
func packetLen(kind wire.Kind, b []byte) int {
	switch at := wire.HeaderLen; kind {
	case wire.KindChallenge:
		return at + wire.ChallengeLen
	case wire.KindRefusal:
		return at + wire.RefusalLen
	case wire.KindUD:
		return segmentEnd(b, at)
	default:
		flags := wire.Flags(b[1])
		if flags.Has(wire.FlagAck) {
			var a wire.Ack
			if _, err := a.Parse(b[at:]); err != nil {
				return 0
			}
			at += a.Len()
		}
		if !flags.Has(wire.FlagData) {
			return at
		}
		at += wire.DataLen
		if flags.Has(wire.FlagStart) {
			at += wire.StartLen
		}
		return segmentEnd(b, at)
	}
}

// segmentEnd returns the end of the headers of a ULPDU that begins at an offset.
func segmentEnd(b []byte, at int) int {
	if at > len(b) {
		return 0
	}
	var h ddp.Header
	body, err := h.Parse(b[at:])
	if err != nil || h.Control.Tagged {
		return 0
	}
	switch h.Control.Opcode {
	case ddp.OpReadRequest:
		return len(b) - len(body) + ddp.ReadRequestLen
	case ddp.OpTerminate:
		var t ddp.Terminate
		rest, err := t.ParseOrder(body, ddp.OrderRFC)
		if err != nil {
			return 0
		}
		return len(b) - len(rest)
	}
	return 0
}

const reservedFlags wire.Flags = 0x03

// setReserved (ReservedSent) sets what has no meaning.
func setReserved(_ *Edge, p *packet) bool {
	const fill = 0x5a
	p.Flags |= reservedFlags
	p.Reserved, p.Ack.Reserved, p.Refusal.Reserved = fill<<8|fill, fill, [3]uint8{fill, fill, fill}
	return true
}

// nothingReserved (ReservedLookedAt) loses packets in which such a thing is set.
func nothingReserved(_ *Edge, p *packet) bool {
	flags := p.Flags
	if p.Kind == wire.KindRD {
		flags &= reservedFlags
	}
	return flags == 0 && p.Reserved == 0 && p.Ack.Reserved == 0 && p.Refusal.Reserved == [3]uint8{}
}
