package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli is the polynomial of CRC32c, the one of MPA and iSCSI.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal appends the CRC of b[from:], a packet that lacks nothing else, least
// significant octet first.
func AppendCRC(b []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// Intact reports whether packet, a whole payload of UDP, ends in the CRC of what
// is before it.
func CheckCRC(packet []byte) bool {
	n := len(packet) - CRCLen
	return n >= 0 && crc32.Checksum(packet[:n], castagnoli) == binary.LittleEndian.Uint32(packet[n:])
}
