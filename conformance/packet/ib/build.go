package ib

import (
	"encoding/binary"
	"reflect"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Or returns p with its nil fields set from defaults, such as those of a connection. It takes nil
// extension headers from defaults as a whole, and never the payload or trailers.
func (p Packet) Or(defaults Packet) Packet {
	p.IP = packet.Or(p.IP, defaults.IP)
	p.UDP = packet.Or(p.UDP, defaults.UDP)
	p.BTH = packet.Or(p.BTH, defaults.BTH)
	p.Extensions = packet.Or(p.Extensions, defaults.Extensions)
	p.udpChecksum = p.udpChecksum || defaults.udpChecksum
	return p
}

// Build returns the bytes of the IP packet and its trailer. An ICRC that is neither set nor chosen
// is computed. Then come the changes of [Packet.InFlight], which leave the ICRC as it is, and last
// those of [Packet.Damaged].
func (p Packet) Build() []byte {
	ipHeaderLen := len(p.IP.Append(nil, nil))
	b := p.assemble(0)                                                   // the ICRC does not cover itself
	correct := icrcOf(b[:len(b)-len(p.Behind)], ipHeaderLen, p.IP.Is6()) // Behind follows the UDP datagram
	icrc := value(p.ICRC, correct)
	if p.chooseICRC != nil {
		icrc = p.chooseICRC(correct)
	}
	if len(p.inFlight) > 0 {
		p = clone(p) // the changes must not modify the caller's packet
	}
	for _, change := range p.inFlight {
		change(&p)
	}
	b = p.assemble(icrc)
	for _, change := range p.damage {
		change(b)
	}
	return append(b, p.Trailer...)
}

// assemble returns the IP packet with this ICRC. UDP ports that are not set get defaults. A UDP
// checksum that is not set is computed if p.udpChecksum is set, else it is 0.
func (p Packet) assemble(icrc uint32) []byte {
	b := packet.AppendFields(nil, p.bth())
	b = append(b, p.BodyBytes()...)
	b = binary.LittleEndian.AppendUint32(b, icrc)
	const srcPort = 0xc000 // the lowest of the range that RoCEv2 recommends
	udp := packet.Or(p.UDP, packet.UDP{SrcPort: new(uint16(srcPort)), DstPort: new(uint16(Port))})
	if udp.Checksum == nil && !p.udpChecksum {
		udp.Checksum = new(uint16(0))
	}
	return p.IP.Append(nil, append(udp.Append(nil, p.IP, b), p.Behind...))
}

// bth returns the BTH with a computed PadCnt, and with BECN in a CNP, where they are not set.
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

// pad returns the pad bytes after the payload: p.Pad if p.Pad or p.Body is set, else zeros up to a
// multiple of four bytes.
func (p Packet) pad() []byte {
	if p.Pad != nil || p.Body != nil {
		return p.Pad
	}
	return make([]byte, -len(p.Payload)&3)
}

// BodyBytes returns the bytes between BTH and ICRC: p.Body if it is set, else the extension
// headers, the payload and the padding. A header that the opcode needs, and that is not set, gets
// default values.
func (p Packet) BodyBytes() []byte {
	if p.Body != nil {
		return p.Body
	}
	info, _ := p.Info()
	if p.AETH != nil || info.Has(HdrAETH) {
		h := value(p.AETH, AETH{})
		if h.Value == nil {
			h.Value = new(value(h.Kind, AckPositive).defaultValue())
		}
		p.AETH = &h
	}
	var b []byte
	extensions := reflect.ValueOf(p.Extensions)
	for i := range extensions.NumField() { // field i is the extension header Header(i)
		if h := extensions.Field(i); !h.IsNil() {
			b = packet.AppendFields(b, h.Interface())
		} else if info.Has(Header(i)) {
			b = packet.AppendFields(b, reflect.New(h.Type().Elem()).Interface())
		}
	}
	payload := p.Payload
	if payload == nil && info.Payload == PayloadCNP {
		payload = make([]byte, cnpPayloadLen)
	}
	return append(append(b, payload...), p.pad()...)
}

// clone returns a deep copy of a packet.
func clone(p Packet) Packet {
	copyPointers(reflect.ValueOf(&p).Elem())
	return p
}

// copyPointers replaces each slice and pointer in the exported fields of struct v, and of structs
// in it, by a copy.
func copyPointers(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case !f.CanSet(): // unexported: the copies share slices, whose elements do not change
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
