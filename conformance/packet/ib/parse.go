package ib

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Errors of [Parse].
var (
	ErrNotRoCE = errors.New("not RoCEv2")               // a valid packet of another protocol
	ErrOpcode  = errors.New("unknown opcode")           // reserved, or of a manufacturer
	ErrPad     = errors.New("more padding than packet") // PadCnt exceeds the payload
	ErrBehind  = errors.New("bytes after the UDP datagram in the IP packet")
)

// Parse parses an IP packet, which the padding of its frame may follow. With an error it also
// returns the fields that it could parse. Errors are ErrNotRoCE for other protocols, ErrOpcode for
// an unknown opcode, whose extension headers count as payload, ErrBehind for bytes after the UDP
// datagram, ErrPad if PadCnt exceeds the payload, and packet.ErrShort.
//
// Parse checks the layout only; see [Packet.CheckICRC] and [Packet.Faults]. It copies b.
func Parse(b []byte) (Packet, error) {
	b = bytes.Clone(b)
	var p Packet
	h, payload, trailer, err := packet.ParseIP(b)
	p.IP, p.Trailer = h, trailer
	if err != nil {
		return p, err
	}
	p.raw = b[:len(b)-len(trailer)]
	switch {
	case h.Fragmented():
		return p, fmt.Errorf("%w: a fragment of an IP packet", ErrNotRoCE)
	case *h.Protocol != packet.ProtocolUDP:
		return p, fmt.Errorf("%w: IP protocol %d, not UDP", ErrNotRoCE, *h.Protocol)
	}
	udp, datagram, behind, err := packet.ParseUDP(payload)
	p.UDP = udp
	if err != nil {
		return p, err
	}
	if *udp.DstPort != Port {
		return p, fmt.Errorf("%w: UDP port %d, not %d", ErrNotRoCE, *udp.DstPort, Port)
	}
	err = p.parseTransport(datagram)
	if p.Behind = behind; len(behind) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d bytes", ErrBehind, len(behind)))
	}
	return p, err
}

// parseTransport parses the payload of the UDP datagram: from the BTH to the ICRC.
func (p *Packet) parseTransport(b []byte) error {
	body, err := packet.ParseFields(b, &p.BTH)
	if err != nil {
		return err
	}
	if len(body) < icrcLen {
		return fmt.Errorf("ICRC: %w: %d of %d bytes", packet.ErrShort, len(body), icrcLen)
	}
	body, icrc := body[:len(body)-icrcLen], body[len(body)-icrcLen:]
	p.ICRC = new(binary.LittleEndian.Uint32(icrc))

	info, known := p.Info()
	for _, h := range info.Headers {
		if body, err = p.parseHeader(h, body); err != nil {
			return fmt.Errorf("%v: %w", p.Opcode(), err)
		}
	}
	pad := int(*p.BTH.PadCnt)
	if pad > len(body) {
		p.Payload, p.Pad = body, []byte{} // nil would make Build add padding
		return fmt.Errorf("%v: %w: PadCnt %d, payload of %d bytes", p.Opcode(), ErrPad, pad, len(body))
	}
	p.Payload, p.Pad = body[:len(body)-pad:len(body)-pad], body[len(body)-pad:]
	if !known {
		return fmt.Errorf("%w %#02x", ErrOpcode, uint8(p.Opcode()))
	}
	return nil
}

// parseHeader parses an extension header at the start of b, and returns the bytes after it.
func (p *Packet) parseHeader(h Header, b []byte) (rest []byte, err error) {
	field := reflect.ValueOf(&p.Extensions).Elem().Field(int(h))
	header := reflect.New(field.Type().Elem())
	if rest, err = packet.ParseFields(b, header.Interface()); err == nil {
		field.Set(header)
	}
	return rest, err
}

// GRHLen is the length of the GRH area before the payload of a received datagram.
const GRHLen = 40

// ParseGRH parses the GRH area of a received datagram: an IPv6 header, or 20 undefined
// bytes and an IPv4 header. family is 4 or 6, since the undefined bytes may look like IPv6.
func ParseGRH(buf []byte, family int) (packet.IP, error) {
	if len(buf) < GRHLen {
		return packet.IP{}, fmt.Errorf("GRH area: %w: %d of %d bytes", packet.ErrShort, len(buf), GRHLen)
	}
	header := buf[:GRHLen]
	if family == 4 {
		header = buf[20:GRHLen]
	}
	h, _, err := packet.ParseIPHeader(header)
	if err == nil && int(*h.Version) != family {
		err = fmt.Errorf("GRH area: IP version %d, not %d", *h.Version, family)
	}
	if err != nil {
		return h, fmt.Errorf("GRH area %x: %w", header, err)
	}
	return h, nil
}
