package engine

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// putICRC replaces the ICRC at the end of a transport packet.
func putICRC(payload []byte, icrc uint32) {
	binary.LittleEndian.PutUint32(payload[len(payload)-wire.ICRCLen:], icrc)
}

// doubledICRC is the ICRC of a packet that counts everything behind UDP twice,
// the second time as it is, variant byte included (Defects.FlushICRCDoubled).
func doubledICRC(icrc *wire.ICRC, id uint16, payload []byte) uint32 {
	body := payload[:len(payload)-wire.ICRCLen]
	return crc32.Update(icrc.Sum(id, body), crc32.IEEETable, body)
}

// isFlush reports whether a transport packet is a FLUSH.
func isFlush(payload []byte) bool { return wire.Opcode(payload[0]).Operation() == wire.OpFlush }
