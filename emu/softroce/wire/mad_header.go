package wire

import (
	"encoding/binary"
	"fmt"
)

// Sizes of a MAD and its two parts, in bytes.
const (
	MADLen       = 256
	MADHeaderLen = 24
	MADBodyLen   = MADLen - MADHeaderLen
)

// The first four bytes of every communication management MAD.
const (
	MADBaseVersion = 1
	ClassCM        = 0x07
	ClassVersionCM = 2
	MethodSend     = 0x03
)

// MADHeader is the common MAD header.
type MADHeader struct {
	BaseVersion   uint8
	Class         uint8
	ClassVersion  uint8
	Method        uint8
	Status        uint16
	ClassSpecific uint16
	TID           uint64 // transaction ID; a reply has that of its request
	Attr          Attr
	Modifier      uint32
}

// NewMADHeader returns the header of a connection management message.
func NewMADHeader(attr Attr, tid uint64) MADHeader {
	return MADHeader{
		BaseVersion: MADBaseVersion, Class: ClassCM, ClassVersion: ClassVersionCM,
		Method: MethodSend, TID: tid, Attr: attr,
	}
}

// Append appends h in wire order and returns the extended slice.
func (h MADHeader) Append(b []byte) []byte {
	b = append(b, h.BaseVersion, h.Class, h.ClassVersion, h.Method)
	b = binary.BigEndian.AppendUint16(b, h.Status)
	b = binary.BigEndian.AppendUint16(b, h.ClassSpecific)
	b = binary.BigEndian.AppendUint64(b, h.TID)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Attr))
	b = append(b, 0, 0)
	return binary.BigEndian.AppendUint32(b, h.Modifier)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *MADHeader) Parse(b []byte) (rest []byte, err error) {
	if len(b) < MADHeaderLen {
		return nil, fmt.Errorf("MAD header: %w: %d of %d bytes", ErrShort, len(b), MADHeaderLen)
	}
	h.BaseVersion, h.Class, h.ClassVersion, h.Method = b[0], b[1], b[2], b[3]
	h.Status = binary.BigEndian.Uint16(b[4:])
	h.ClassSpecific = binary.BigEndian.Uint16(b[6:])
	h.TID = binary.BigEndian.Uint64(b[8:])
	h.Attr = Attr(binary.BigEndian.Uint16(b[16:]))
	h.Modifier = binary.BigEndian.Uint32(b[20:])
	return b[MADHeaderLen:], nil
}
