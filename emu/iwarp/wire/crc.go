package wire

import "hash/crc32"

// castagnoli is the table of CRC32c.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC of an FPDU. b is all of it before the CRC, markers included, also one
// before the ULPDU_Length. Unlike all other fields it is sent least significant octet
// first.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC adds b to crc, which is 0 at first, for an FPDU in several buffers.
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
