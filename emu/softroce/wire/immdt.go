package wire

import "encoding/binary"

// ImmDt is immediate data: four opaque bytes, as a big-endian number.
type ImmDt uint32

var errShortImmDt = shortError("ImmDt", ImmDtLen)

// Append appends d in wire order and returns the extended slice.
func (d ImmDt) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(d))
}

// Parse decodes d from the front of b and returns the bytes that follow.
func (d *ImmDt) Parse(b []byte) (rest []byte, err error) {
	if len(b) < ImmDtLen {
		return nil, errShortImmDt
	}
	*d = ImmDt(binary.BigEndian.Uint32(b))
	return b[ImmDtLen:], nil
}
