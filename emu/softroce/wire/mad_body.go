package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooLong means that data is longer than its field.
var ErrTooLong = errors.New("data too long for its field")

var zeroBody [MADBodyLen]byte

// message is the body of a MAD. Its method fields lists the fields once, for Append and Parse.
type message interface{ fields(c bodyCodec) }

// appendBody appends the encoded body of m to b.
func appendBody(b []byte, m message) []byte {
	b = append(b, zeroBody[:]...)
	m.fields(bodyCodec{body: b[len(b)-MADBodyLen:], encode: true})
	return b
}

// parseBody decodes m from the front of b and returns the bytes that follow. Errors contain name,
// the name of the message.
func parseBody(name string, b []byte, m message) (rest []byte, err error) {
	if len(b) < MADBodyLen {
		return nil, fmt.Errorf("%s: %w: %d of %d bytes", name, ErrShort, len(b), MADBodyLen)
	}
	m.fields(bodyCodec{body: b[:MADBodyLen]})
	return b[MADBodyLen:], nil
}

// bodyCodec encodes fields into the body of a MAD, which is zero before, or decodes them from it.
type bodyCodec struct {
	body   []byte
	encode bool
}

// bitField encodes or decodes *v, a field of width bits in the big-endian 32-bit word at offset at.
// low is the number of its lowest bit. Before encoding, the bits of the field are zero.
func bitField[T ~uint8 | ~uint16 | ~uint32](c bodyCodec, at, low, width int, v *T) {
	word, mask := binary.BigEndian.Uint32(c.body[at:]), uint32(1)<<width-1
	if c.encode {
		binary.BigEndian.PutUint32(c.body[at:], word|uint32(*v)&mask<<low)
	} else {
		*v = T(word >> low & mask)
	}
}

// flag encodes or decodes bit number low of the big-endian 32-bit word at offset at.
func (c bodyCodec) flag(at, low int, v *bool) {
	value := bit(*v, 1)
	bitField(c, at, low, 1, &value) // one bit
	*v = value != 0
}

// field64 encodes or decodes the 64-bit number at offset at.
func field64[T ~uint64](c bodyCodec, at int, v *T) {
	if c.encode {
		binary.BigEndian.PutUint64(c.body[at:], uint64(*v))
	} else {
		*v = T(binary.BigEndian.Uint64(c.body[at:]))
	}
}

// bytes encodes or decodes the bytes at offset at.
func (c bodyCodec) bytes(at int, field []byte) {
	if c.encode {
		copy(c.body[at:], field)
	} else {
		copy(field, c.body[at:])
	}
}

// commIDs encodes or decodes the two communication IDs that begin most messages.
func (c bodyCodec) commIDs(local, remote *uint32) {
	bitField(c, 0, 0, 32, local)
	bitField(c, 4, 0, 32, remote)
}

// FillField copies data into a field of fixed length, such as private data, and zeroes the rest.
// The length is not sent: a receiver sees the whole field.
func FillField(field, data []byte) error {
	if len(data) > len(field) {
		return fmt.Errorf("%w: %d bytes, at most %d fit", ErrTooLong, len(data), len(field))
	}
	clear(field[copy(field, data):])
	return nil
}
