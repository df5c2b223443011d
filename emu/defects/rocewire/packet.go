package rocewire

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// packet is a datagram in a Filter, which owns its payload.
type packet struct {
	link.Datagram
	now     mono.Time // when it was received or sent
	changed bool      // the ICRC must be computed again
}

// Fields of the BTH.
const (
	flagsByte  = 1 // offset in the BTH: solicited event, MigReq, pad count, version
	ackReqByte = 8

	migReqBit = 0x40 // in flagsByte
	padBits   = 0x30
	reserved6 = 0x3f // in byte 4
	ackReqBit = 0x80 // in ackReqByte
	reserved7 = 0x7f
	lowBits24 = 1<<24 - 1
	padShift  = 4
)

func (p *packet) opcode() wire.Opcode { return wire.Opcode(p.Payload[0]) }

// info describes the opcode; it is zero for a reserved opcode.
func (p *packet) info() wire.Info {
	info, _ := p.opcode().Info()
	return info
}

// isReliable reports whether the packet belongs to the operation op over RC or XRC.
func (p *packet) isReliable(op wire.Operation) bool {
	t := p.opcode().Transport()
	return (t == wire.TransportRC || t == wire.TransportXRC) && p.opcode().Operation() == op
}

func (p *packet) psn() wire.PSN {
	return wire.PSN(binary.BigEndian.Uint32(p.Payload[8:])) & wire.PSNMask
}

func (p *packet) setPSN(n wire.PSN) {
	binary.BigEndian.PutUint32(p.Payload[8:], uint32(p.Payload[8])<<24|uint32(n&wire.PSNMask))
	p.changed = true
}

func (p *packet) destQP() uint32 { return binary.BigEndian.Uint32(p.Payload[4:]) & lowBits24 }

// header returns the bytes of the extension header h; nil if the packet has no such header, or is
// too short. Headers follow each other in the order of their bits in a HeaderSet.
func (p *packet) header(h wire.HeaderSet) []byte {
	set := p.info().Headers
	if !set.Has(h) {
		return nil
	}
	headersBefore := set & (h - 1)
	at := wire.BTHLen + headersBefore.Len()
	if at+h.Len()+wire.ICRCLen > len(p.Payload) {
		return nil
	}
	return p.Payload[at:][:h.Len()]
}

// syndrome returns the AETH syndrome of an ACK or NAK of RC or XRC. ok is false for other packets.
func (p *packet) syndrome() (s wire.Syndrome, ok bool) {
	if h := p.header(wire.HasAETH); h != nil && p.isReliable(wire.OpAcknowledge) {
		return wire.Syndrome(h[0]), true
	}
	return 0, false
}

// setSyndrome changes the syndrome of a packet with an AETH.
func (p *packet) setSyndrome(s wire.Syndrome) {
	p.header(wire.HasAETH)[0] = byte(s)
	p.changed = true
}

// splitICRC returns the packet without its ICRC, and the ICRC.
func (p *packet) splitICRC() (body []byte, icrc uint32) {
	n := len(p.Payload) - wire.ICRCLen
	return p.Payload[:n], binary.LittleEndian.Uint32(p.Payload[n:])
}

// replaceICRC sets the last four bytes of the payload.
func (p *packet) replaceICRC(icrc uint32) {
	binary.LittleEndian.PutUint32(p.Payload[len(p.Payload)-wire.ICRCLen:], icrc)
}

// ipID returns the IP identification; 0 if the link does not show it.
func (p *packet) ipID() uint16 {
	if p.IPID >= link.IPIDUnknown {
		return 0
	}
	return uint16(p.IPID)
}

// rightICRC returns the ICRC that the packet should have.
func (p *packet) rightICRC() uint32 {
	body, _ := p.splitICRC()
	return wire.NewICRC(p.Src, p.Dst).Sum(p.ipID(), body)
}

// checkICRC reports whether the ICRC is right; without ICRCs it always is. If the link does not
// show the IPv4 identification, which the ICRC covers, checkICRC looks for a value that makes the
// ICRC right, and stores it in the packet.
func (f *Filter) checkICRC(p *packet) bool {
	icrc := wire.NewICRC(p.Src, p.Dst)
	switch {
	case !f.hasICRC:
		return true
	case p.IPID < link.IPIDUnknown || !p.Is4():
		return icrc.Check(p.ipID(), p.Payload)
	}
	id, ok := icrc.CheckAnyIPID(p.Payload)
	if ok {
		p.IPID = uint32(id)
	}
	return ok
}

// setICRC sets the ICRC of a changed packet to the right one.
func (f *Filter) setICRC(p *packet) {
	if f.hasICRC {
		p.replaceICRC(p.rightICRC())
	}
	p.changed = false
}

// acceptWithoutDF emulates the defect DFUnchecked: it makes a received packet with DF clear look as
// if DF were set. The ICRC of such a packet is wrong for checkICRC, which assumes that DF is set.
// So acceptWithoutDF inverts in a wrong ICRC the bits that depend on DF.
func acceptWithoutDF(f *Filter, p *packet) (pass bool) {
	if !f.hasICRC || !p.Is4() || len(p.Payload) < wire.BTHLen+wire.ICRCLen || f.checkICRC(p) {
		return true
	}
	p.Variants &^= link.MayFragment // the link has set this bit because DF was clear
	// A CRC is linear: which bits depend on DF follows from the number of bytes after it, here zeros.
	const dfByte, dfBit = 6, 0x40 // in the IPv4 header
	const flagsToUDPEnd = link.IPv4HeaderLen - dfByte + link.UDPHeaderLen
	body, icrc := p.splitICRC()
	covered := make([]byte, flagsToUDPEnd+len(body))
	crcDFClear := crc32.ChecksumIEEE(covered)
	covered[0] = dfBit
	p.replaceICRC(icrc ^ crcDFClear ^ crc32.ChecksumIEEE(covered))
	return true
}

// checkDoubledICRC emulates the defect FlushICRCDoubled on received packets. If the ICRC of a FLUSH
// covers the packet twice, as the Linux driver rxe computes it, the right ICRC replaces it.
// Otherwise all bits of the ICRC are inverted, so that the NIC drops the packet.
func checkDoubledICRC(f *Filter, p *packet) (pass bool) {
	if !f.hasICRC || len(p.Payload) < wire.BTHLen+wire.ICRCLen || !p.isReliable(wire.OpFlush) {
		return true
	}
	body, icrc := p.splitICRC()
	if right := p.rightICRC(); icrc == doubledICRC(right, body) {
		p.replaceICRC(right)
	} else {
		p.replaceICRC(^icrc)
	}
	return true
}

// doubledICRC returns the ICRC that rxe computes for a FLUSH. It covers body, the packet from the
// BTH on, twice, the second time unmasked. icrc is the right ICRC.
func doubledICRC(icrc uint32, body []byte) uint32 {
	return crc32.Update(icrc, crc32.IEEETable, body)
}

// addPad emulates the defect RaggedAccepted: if the length of a received packet is not a multiple
// of four, it corrects the padding, so that the NIC accepts the packet. It leaves the ICRC to
// setICRC, and drops no packet.
func addPad(_ *Filter, p *packet) (pass bool) {
	head := p.info().HeaderLen
	end := len(p.Payload) - wire.ICRCLen - int(p.Payload[flagsByte]&padBits)>>padShift
	if len(p.Payload)&3 != 0 && head <= end {
		pad := wire.PadLen(end - head)
		p.Payload = slices.Concat(p.Payload[:end], make([]byte, pad+wire.ICRCLen))
		p.Payload[flagsByte] = p.Payload[flagsByte]&^padBits | uint8(pad)<<padShift
		p.changed = true
	}
	return true
}
