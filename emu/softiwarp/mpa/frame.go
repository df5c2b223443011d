package mpa

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// framePlain queues an FPDU without markers: three pieces, or one if there is so
// little payload that it is copied.
func (c *Conn) framePlain(header []byte, payload [][]byte, load int) {
	o := &c.out
	n := len(header) + load
	pad := wire.PadLen(n)
	c.at += uint64(wire.FPDULen(n))
	if load <= copyLimit {
		o.begin(wire.FPDULen(n))
		b := o.own(wire.FPDULen(n))
		binary.BigEndian.PutUint16(b, uint16(n))
		i := wire.ULPDULengthLen + copy(b[wire.ULPDULengthLen:], header)
		for _, p := range payload {
			i += copy(b[i:], p)
		}
		c.fillPad(b[i:i+pad], i, load)
		crc := uint32(0)
		if c.params.Out.CRC {
			crc = wire.CRC(b[:i+pad])
		}
		binary.LittleEndian.PutUint32(b[i+pad:], crc)
		c.remember(b, load)
		return
	}
	o.begin(wire.FPDULen(n) - load)
	b := o.own(wire.ULPDULengthLen + len(header))
	binary.BigEndian.PutUint16(b, uint16(n))
	copy(b[wire.ULPDULengthLen:], header)
	c.remember(b, load)
	for _, p := range payload {
		o.borrow(p)
	}
	trailer := o.own(pad + wire.CRCLen)
	clear(trailer[:pad])
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
	// siwShort is the payload up to which siw builds an FPDU in one buffer.
	siwShort = 32
	// staleLen is enough for such an FPDU with the longest header.
	staleLen = wire.ULPDULengthLen + wire.MaxHeaderLen + siwShort + 3 + wire.CRCLen
)

// fillPad fills the pad at offset i of an FPDU: with zeros, unless a defect leaves
// what was there.
func (c *Conn) fillPad(pad []byte, i, load int) {
	if c.q.StalePad && load <= siwShort && i+len(pad) <= staleLen {
		copy(pad, c.stale[i:])
		return
	}
	clear(pad)
}

// remember keeps what an FPDU leaves in the buffer in which siw builds its
// beginning.
func (c *Conn) remember(b []byte, load int) {
	if !c.q.StalePad {
		return
	}
	if load > siwShort {
		b = b[:min(len(b), wire.ULPDULengthLen+wire.ControlLen+wire.UntaggedLen)]
	}
	copy(c.stale[:], b)
}
