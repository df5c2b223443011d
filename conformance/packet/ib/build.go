package ib

import (
	"encoding/binary"
	"reflect"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Or returns p with its nil fields set from defaults: for example the addresses, ports and
// QPN of a connection. Extension headers are taken as a whole; payload and trailers are not.
func (p Packet) Or(defaults Packet) Packet {
	p.IP = packet.Or(p.IP, defaults.IP)
	p.UDP = packet.Or(p.UDP, defaults.UDP)
	p.BTH = packet.Or(p.BTH, defaults.BTH)
	orHeader(&p.RDETH, defaults.RDETH)
	orHeader(&p.XRCETH, defaults.XRCETH)
	orHeader(&p.DETH, defaults.DETH)
	orHeader(&p.FETH, defaults.FETH)
	orHeader(&p.RETH, defaults.RETH)
	orHeader(&p.AtomicETH, defaults.AtomicETH)
	orHeader(&p.AETH, defaults.AETH)
	orHeader(&p.AtomicAck, defaults.AtomicAck)
	orHeader(&p.Imm, defaults.Imm)
	orHeader(&p.IETH, defaults.IETH)
	p.udpSummed = p.udpSummed || defaults.udpSummed
	return p
}

func orHeader[T any](h **T, def *T) {
	if *h == nil {
		*h = def
	}
}

// Build returns the IP packet with its trailer.
func (p Packet) Build() []byte {
	size := len(p.IP.Append(nil, nil))
	b := p.assemble(0)
	right := icrc(b[:len(b)-len(p.Behind)], size, p.IP.Is6())
	seal := value(p.ICRC, right)
	if p.seal != nil {
		seal = p.seal(right)
	}
	if len(p.odd) > 0 {
		p = clone(p) // the changes must not modify the caller's packet
	}
	for _, change := range p.odd {
		change(&p)
	}
	b = p.assemble(seal)
	for _, change := range p.damage {
		change(b)
	}
	return append(b, p.Trailer...)
}

// assemble returns the IP packet with this ICRC.
func (p Packet) assemble(icrc uint32) []byte {
	b := packet.AppendFields(nil, p.bth())
	b = append(b, p.body()...)
	b = binary.LittleEndian.AppendUint32(b, icrc)
	udp := packet.Or(p.UDP, packet.UDP{SrcPort: new(uint16(0xc000)), DstPort: new(uint16(Port))})
	if udp.Checksum == nil && !p.udpSummed {
		udp.Checksum = new(uint16(0))
	}
	return p.IP.Append(nil, append(udp.Append(nil, p.IP, b), p.Behind...))
}

// bth returns the BTH with computed fields.
func (p Packet) bth() BTH {
	h := p.BTH
	if h.PadCnt == nil {
		h.PadCnt = new(uint8(len(p.pad()) & 3))
	}
	if p.Opcode() == OpCNP && h.BECN == nil {
		h.BECN = new(true)
	}
	return h
}

func (p Packet) pad() []byte {
	if p.Pad != nil || p.Body != nil {
		return p.Pad
	}
	return make([]byte, -len(p.Payload)&3)
}

func (p Packet) body() []byte {
	if p.Body != nil {
		return p.Body
	}
	info, _ := p.Info()
	var b []byte
	for h := HdrRDETH; h <= HdrIETH; h++ {
		if v := p.header(h, info.Has(h)); v != nil {
			b = packet.AppendFields(b, v)
		}
	}
	payload := p.Payload
	if payload == nil && info.Payload == PayloadCNP {
		payload = make([]byte, 16)
	}
	return append(append(b, payload...), p.pad()...)
}

// header returns an extension header of the packet, with defaults if the opcode needs it,
// or nil.
func (p Packet) header(h Header, needed bool) any {
	switch h {
	case HdrRDETH:
		return orEmpty(p.RDETH, needed)
	case HdrXRCETH:
		return orEmpty(p.XRCETH, needed)
	case HdrDETH:
		return orEmpty(p.DETH, needed)
	case HdrFETH:
		return orEmpty(p.FETH, needed)
	case HdrRETH:
		return orEmpty(p.RETH, needed)
	case HdrAtomicETH:
		return orEmpty(p.AtomicETH, needed)
	case HdrAETH:
		return p.aeth(needed)
	case HdrAtomicAckETH:
		return orEmpty(p.AtomicAck, needed)
	case HdrImmDt:
		return orEmpty(p.Imm, needed)
	case HdrIETH:
		return orEmpty(p.IETH, needed)
	}
	return nil
}

func orEmpty[T any](h *T, needed bool) any {
	switch {
	case h != nil:
		return *h
	case needed:
		return *new(T)
	}
	return nil
}

func (p Packet) aeth(needed bool) any {
	if p.AETH == nil && !needed {
		return nil
	}
	h := value(p.AETH, AETH{})
	if h.Value == nil {
		h.Value = new(value(h.Kind, AckPositive).defaultValue())
	}
	return h
}

// clone returns a deep copy of a packet.
func clone(p Packet) Packet {
	copyPointers(reflect.ValueOf(&p).Elem())
	return p
}

// copyPointers replaces pointers and slices in v by copies.
func copyPointers(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case !f.CanSet(): // unexported; methods copy it
		case f.Kind() == reflect.Struct:
			copyPointers(f)
		case f.Kind() == reflect.Slice && !f.IsNil():
			f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
		case f.Kind() == reflect.Pointer && !f.IsNil():
			c := reflect.New(f.Type().Elem())
			c.Elem().Set(f.Elem())
			if c.Elem().Kind() == reflect.Struct {
				copyPointers(c.Elem())
			}
			f.Set(c)
		}
	}
}
