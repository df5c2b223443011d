package wire

import "encoding/binary"

// OpWriteRecord is the RDMAP opcode of Write-Record: the one that the registry
// keeps for experiments. A segment of it is tagged, and begins with a WriteRecord.
const OpWriteRecord = 15

// WriteRecord stands between the tagged DDP header and the payload in each
// segment of an RDMA Write-Record. With it any segment tells by itself which
// message it is of, how long that is, and where in memory it began.
//
//	0 MSN | 4 offset | 8 length | 12 immediate data
type WriteRecord struct {
	MSN    uint32
	MO     uint32 // where in the message the payload goes
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
