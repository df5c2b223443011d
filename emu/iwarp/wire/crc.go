package wire

import "hash/crc32"

// castagnoli is the table of CRC32c.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC32c of an FPDU. b is the whole FPDU before the CRC, with its markers,
// including one before the ULPDU_Length. Unlike all other fields the CRC is sent least
// significant octet first.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC returns the CRC of the octets that crc covers followed by b, for an FPDU in several
// buffers. The CRC of no octets is 0.
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
