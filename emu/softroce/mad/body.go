package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooLong is what errors.Is finds when data exceeds its field's size.
var ErrTooLong = errors.New("data too long for its field")

var zeroBody [BodyLen]byte

// grow appends a zeroed body to b and returns the extended slice and the body
// within it, so that fields can be put at the offsets the tables give.
func appendBody(b []byte) (all, body []byte) {
	b = append(b, zeroBody[:]...)
	return b, b[len(b)-BodyLen:]
}

// cut splits b into a body and the rest.
func splitBody(name string, b []byte) (body, rest []byte, err error) {
	if len(b) < BodyLen {
		return nil, nil, fmt.Errorf("%s: %w: %d of %d bytes", name, ErrShort, len(b), BodyLen)
	}
	return b[:BodyLen], b[BodyLen:], nil
}

// put24 stores the low 24 bits of v and the byte after them.
func put24(b []byte, v uint32, after uint8) {
	binary.BigEndian.PutUint32(b, v<<8|uint32(after))
}

func get24(b []byte) uint32 { return binary.BigEndian.Uint32(b) >> 8 }

func bit(on bool, shift uint) uint8 {
	if on {
		return 1 << shift
	}
	return 0
}

// Fill copies data into a fixed field such as a message's private data and
// zeroes the rest. The wire carries no length: a receiver sees the whole field.
func Fill(field, data []byte) error {
	if len(data) > len(field) {
		return fmt.Errorf("%w: %d bytes, at most %d fit", ErrTooLong, len(data), len(field))
	}
	clear(field[copy(field, data):])
	return nil
}
