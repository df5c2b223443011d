package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli is the table of CRC32c.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendCRC appends the CRC of the packet b[from:], least significant octet first.
func AppendCRC(b []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// CheckCRC reports whether packet, a whole UDP payload, ends in the CRC of its other octets.
func CheckCRC(packet []byte) bool {
	n := len(packet) - CRCLen
	return n >= 0 && crc32.Checksum(packet[:n], castagnoli) == binary.LittleEndian.Uint32(packet[n:])
}
