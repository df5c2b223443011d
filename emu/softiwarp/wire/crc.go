package wire

import "hash/crc32"

// castagnoli is the polynomial of CRC32c, which MPA shares with iSCSI.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC of an FPDU: of b from the marker before the ULPDU_Length,
// if there is one, to the last octet before the CRC, markers included. It goes
// onto the wire least significant octet first, unlike all other fields.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC returns the CRC of what crc is that of, 0 at first, followed by b:
// an FPDU need not lie in one piece.
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
