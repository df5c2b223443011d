package mpa

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// framePlain queues an FPDU without markers: header, borrowed payload and trailer in separate
// buffers, or one buffer if the payload, of payloadLen octets, is so short that it is copied.
func (c *Conn) framePlain(header []byte, payload [][]byte, payloadLen int) {
	o := &c.out
	n := len(header) + payloadLen // length of the ULPDU
	pad := wire.PadLen(n)
	c.streamPos += uint64(wire.FPDULen(n))
	if payloadLen <= copyLimit {
		o.reserve(wire.FPDULen(n))
		b := o.alloc(wire.FPDULen(n))
		binary.BigEndian.PutUint16(b, uint16(n))
		i := wire.ULPDULengthLen + copy(b[wire.ULPDULengthLen:], header)
		for _, p := range payload {
			i += copy(b[i:], p)
		}
		c.fillPad(b[i:i+pad], i, payloadLen)
		crc := uint32(0)
		if c.params.Out.CRC {
			crc = wire.CRC(b[:i+pad])
		}
		binary.LittleEndian.PutUint32(b[i+pad:], crc)
		c.keepStale(b, payloadLen) // a device with the policy ReusePad sends it in later pads
		return
	}
	o.reserve(wire.FPDULen(n) - payloadLen)
	b := o.alloc(wire.ULPDULengthLen + len(header))
	binary.BigEndian.PutUint16(b, uint16(n))
	copy(b[wire.ULPDULengthLen:], header)
	c.keepStale(b, payloadLen)
	for _, p := range payload {
		o.borrow(p)
	}
	trailer := o.alloc(pad + wire.CRCLen)
	clear(trailer[:pad]) // fillPad would do the same: the payload is longer than shortPayload
	crc := uint32(0)
	if c.params.Out.CRC {
		crc = wire.CRC(b)
		for _, p := range payload {
			crc = wire.UpdateCRC(crc, p)
		}
		if pad > 0 {
			crc = wire.UpdateCRC(crc, trailer[:pad])
		}
	}
	binary.LittleEndian.PutUint32(trailer[pad:], crc)
}

const (
	// shortPayload is the longest payload of a short FPDU, which is built in one buffer.
	shortPayload = 32
	// staleLen is the length of such an FPDU with the longest header.
	staleLen = wire.ULPDULengthLen + wire.MaxHeaderLen + shortPayload + 3 + wire.CRCLen
)

// fillPad fills the pad, which begins at an offset of an FPDU with payloadLen octets of payload,
// with zeros. The policy ReusePad imitates a device that builds FPDUs with short payloads in one
// buffer and does not clear the pad. The pad then has octets of earlier FPDUs, kept in c.stale.
func (c *Conn) fillPad(pad []byte, offset, payloadLen int) {
	if c.policy.ReusePad && payloadLen <= shortPayload && offset+len(pad) <= staleLen {
		copy(pad, c.stale[offset:])
		return
	}
	clear(pad)
}

// keepStale copies an FPDU to c.stale, from which the policy ReusePad takes the pad of later FPDUs.
// Of an FPDU with a long payload, the imitated device has only the headers in that buffer.
func (c *Conn) keepStale(b []byte, payloadLen int) {
	if !c.policy.ReusePad {
		return
	}
	if payloadLen > shortPayload {
		b = b[:min(len(b), wire.ULPDULengthLen+wire.ControlLen+wire.UntaggedLen)]
	}
	copy(c.stale[:], b)
}
