package rocewire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// packet is a datagram on its way through an Edge. Its payload may be changed.
type packet struct {
	link.Datagram
	now      mono.Time
	changed  bool // the ICRC no longer fits
	trailer  int  // bytes that follow the ICRC
	outgoing bool
}

func (p *packet) opcode() wire.Opcode { return wire.Opcode(p.Payload[0]) }

func (p *packet) info() wire.Info {
	info, _ := p.opcode().Info()
	return info
}

func (p *packet) class() wire.Class { return p.info().Class }

// is reports whether the packet is one of an operation of a reliable connection.
func (p *packet) is(op wire.Operation) bool {
	return p.reliable() && p.opcode().Operation() == op
}

func (p *packet) reliable() bool {
	t := p.opcode().Transport()
	return t == wire.TransportRC || t == wire.TransportXRC
}

func (p *packet) psn() wire.PSN {
	return wire.PSN(binary.BigEndian.Uint32(p.Payload[8:])) & wire.PSNMask
}

func (p *packet) setPSN(n wire.PSN) {
	binary.BigEndian.PutUint32(p.Payload[8:], uint32(p.Payload[8])<<24|uint32(n&wire.PSNMask))
	p.changed = true
}

func (p *packet) destQP() uint32 { return binary.BigEndian.Uint32(p.Payload[4:]) & 0xffffff }

func (p *packet) setDestQP(n uint32) {
	binary.BigEndian.PutUint32(p.Payload[4:], uint32(p.Payload[4])<<24|n)
	p.changed = true
}

const (
	solicited = 0x80 // in byte 1
	migReq    = 0x40
	padBits   = 0x30
	ackReq    = 0x80 // in byte 8
)

func (p *packet) pad() int { return int(p.Payload[1]&padBits) >> 4 }

// header returns the bytes of an extension header; nil if the packet has none
// such, or ends before it does.
func (p *packet) header(h wire.HeaderSet) []byte {
	set := p.info().Headers
	if !set.Has(h) {
		return nil
	}
	at := wire.BTHLen + (set & (h - 1)).Len()
	if at+h.Len()+wire.ICRCLen > len(p.Payload) {
		return nil
	}
	return p.Payload[at:][:h.Len()]
}

// data returns what is behind the headers, and neither pad nor ICRC.
func (p *packet) data() []byte {
	end := len(p.Payload) - wire.ICRCLen - p.pad()
	if at := p.info().HeaderLen; at <= end {
		return p.Payload[at:end:end]
	}
	return nil
}

// setData replaces the payload behind headers, and pads it.
func (p *packet) setData(headers, data []byte) {
	pad := wire.PadLen(len(data))
	b := slices.Concat(headers, data, make([]byte, pad+wire.ICRCLen))
	b[1] = b[1]&^padBits | uint8(pad)<<4
	p.Payload, p.changed = b, true
}

// insert puts bytes in at an offset.
func (p *packet) insert(at int, b []byte) {
	p.Payload = slices.Concat(p.Payload[:at], b, p.Payload[at:])
	p.changed = true
}

// syndrome returns the AETH syndrome, if the packet is an RC ACKNOWLEDGE.
func (p *packet) syndrome() (s wire.Syndrome, ok bool) {
	if h := p.header(wire.HasAETH); h != nil && p.is(wire.OpAcknowledge) {
		return wire.Syndrome(h[0]), true
	}
	return 0, false
}

func (p *packet) setSyndrome(s wire.Syndrome) {
	p.header(wire.HasAETH)[0] = byte(s)
	p.changed = true
}

func (p *packet) reth() (r wire.RETH, ok bool) {
	h := p.header(wire.HasRETH)
	if h == nil {
		return r, false
	}
	_, err := r.Parse(h)
	return r, err == nil
}

func (p *packet) sentBy(a netip.Addr) { p.Src = netip.AddrPortFrom(a, p.Src.Port()); p.changed = true }

// icrcOf is the ICRC of body between the addresses of d: over the headers as
// they should be, with ones in place of what may change on the way. mayFragment
// says that DF is clear, trailer how many bytes follow the ICRC.
func icrcOf(d *link.Datagram, body []byte, mayFragment bool, trailer int) uint32 {
	length := link.UDPHeaderLen + len(body) + wire.ICRCLen + trailer
	b := slices.Repeat([]byte{0xff}, 8)
	if src, dst := d.Src.Addr(), d.Dst.Addr(); dst.Is4() {
		b = append(b, 0x45, 0xff)
		b = binary.BigEndian.AppendUint16(b, uint16(link.IPv4HeaderLen+length))
		id := uint16(d.IPID)
		if d.IPID >= link.IPIDUnknown {
			id = 0
		}
		b = binary.BigEndian.AppendUint16(b, id)
		flags := uint16(0x4000)
		if mayFragment {
			flags = 0
		}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = append(b, 0xff, 17, 0xff, 0xff)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	} else {
		b = append(b, 0x6f, 0xff, 0xff, 0xff)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, 17, 0xff)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	}
	b = binary.BigEndian.AppendUint16(b, d.Src.Port())
	b = binary.BigEndian.AppendUint16(b, d.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, 0xff, 0xff)
	at := len(b) + 4
	b = append(b, body...)
	b[at] = 0xff
	return crc32.ChecksumIEEE(b)
}

// split separates the ICRC from what it covers.
func (p *packet) split() (body []byte, icrc uint32) {
	n := len(p.Payload) - wire.ICRCLen
	return p.Payload[:n], binary.LittleEndian.Uint32(p.Payload[n:])
}

// intact reports whether the ICRC is right. It fills in the IP identification
// where the check reveals it.
func (e *Edge) intact(p *packet) bool {
	body, got := p.split()
	switch {
	case !e.icrc:
		return true
	case p.IPID < link.IPIDUnknown || p.Dst.Addr().Is6():
		return icrcOf(&p.Datagram, body, false, 0) == got
	}
	id, ok := wire.NewICRC(p.Src, p.Dst).CheckAnyIPID(p.Payload)
	if ok {
		p.IPID = uint32(id)
	}
	return ok
}

// seal makes the ICRC right.
func (e *Edge) seal(p *packet) {
	if body, _ := p.split(); e.icrc {
		binary.LittleEndian.PutUint32(p.Payload[len(body):], icrcOf(&p.Datagram, body, p.Variants&link.MayFragment != 0, p.trailer))
	}
	p.changed = false
}

// reversed turns the ICRC's bytes around.
func (p *packet) reversed() packet {
	c := *p
	c.Payload = slices.Clone(p.Payload)
	body, icrc := c.split()
	binary.LittleEndian.PutUint32(c.Payload[len(body):], bits.ReverseBytes32(icrc))
	return c
}
