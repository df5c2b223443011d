package wire

import "encoding/binary"

// OpWriteRecord is the RDMAP opcode of Write-Record, from the experimental range. Its
// segments are tagged and begin with a WriteRecord.
const OpWriteRecord = 15

// WriteRecord is the header between the tagged DDP header and the payload of each segment of
// a Write-Record. It identifies the message, its length and its position in memory.
//
//	0 MSN | 4 offset | 8 length | 12 immediate data
type WriteRecord struct {
	MSN    uint32
	MO     uint32 // message offset of the payload
	Length uint32 // of the whole message
	Imm    uint32
}

var errShortWriteRecord = shortError("Write-Record", WriteRecordLen)

// Append appends h in wire order and returns the extended slice.
func (h WriteRecord) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.MSN)
	b = binary.BigEndian.AppendUint32(b, h.MO)
	b = binary.BigEndian.AppendUint32(b, h.Length)
	return binary.BigEndian.AppendUint32(b, h.Imm)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *WriteRecord) Parse(b []byte) (rest []byte, err error) {
	if len(b) < WriteRecordLen {
		return nil, errShortWriteRecord
	}
	h.MSN = binary.BigEndian.Uint32(b)
	h.MO = binary.BigEndian.Uint32(b[4:])
	h.Length = binary.BigEndian.Uint32(b[8:])
	h.Imm = binary.BigEndian.Uint32(b[12:])
	return b[WriteRecordLen:], nil
}
