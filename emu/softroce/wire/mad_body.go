package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooLong means that data is longer than its field.
var ErrTooLong = errors.New("data too long for its field")

var zeroBody [MADBodyLen]byte

// appendBody appends a zeroed body to b. It returns the extended slice and the body in it.
func appendBody(b []byte) (all, body []byte) {
	b = append(b, zeroBody[:]...)
	return b, b[len(b)-MADBodyLen:]
}

// splitBody splits b into the body of a MAD and the rest. name is that of the message, for errors.
func splitBody(name string, b []byte) (body, rest []byte, err error) {
	if len(b) < MADBodyLen {
		return nil, nil, fmt.Errorf("%s: %w: %d of %d bytes", name, ErrShort, len(b), MADBodyLen)
	}
	return b[:MADBodyLen], b[MADBodyLen:], nil
}

// put24 stores the low 24 bits of v, and the byte after in the fourth byte.
func put24(b []byte, v uint32, after uint8) {
	binary.BigEndian.PutUint32(b, v<<8|uint32(after))
}

// get24 returns the first 24 bits of b.
func get24(b []byte) uint32 { return binary.BigEndian.Uint32(b) >> 8 }

// FillField copies data into a field of fixed length, such as private data, and zeroes the rest.
// The length is not sent: a receiver sees the whole field.
func FillField(field, data []byte) error {
	if len(data) > len(field) {
		return fmt.Errorf("%w: %d bytes, at most %d fit", ErrTooLong, len(data), len(field))
	}
	clear(field[copy(field, data):])
	return nil
}
