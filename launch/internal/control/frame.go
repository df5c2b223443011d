package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// HeaderLen is the length of a frame without its body.
const HeaderLen = 13

// lengthBase is the value of the length field for an empty body.
const lengthBase = HeaderLen - 4

// ErrProtocol means that the peer violated the protocol.
var ErrProtocol = errors.New("control channel")

// Frame is a frame of the control channel.
type Frame struct {
	Kind Kind
	Num  uint64
	Body []byte
}

// Append appends the encoded frame to b.
func (f Frame) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(lengthBase+len(f.Body)))
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint64(b, f.Num)
	return append(b, f.Body...)
}

// Limits are the maximum body sizes of allowed kinds. Other kinds are not allowed.
type Limits map[Kind]int

// Read reads one frame. It returns io.EOF if the peer closed the channel between two
// frames, io.ErrUnexpectedEOF within a frame, and ErrProtocol for a frame that limits
// does not allow. It allocates memory only for bytes that have arrived.
func Read(r io.Reader, limits Limits) (Frame, error) {
	var h [HeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(h[4]), Num: binary.BigEndian.Uint64(h[5:])}
	limit, ok := limits[f.Kind]
	if !ok {
		return Frame{}, fmt.Errorf("%w: unexpected message of %v (the first bytes are %x)", ErrProtocol, f.Kind, h[:8])
	}
	length := binary.BigEndian.Uint32(h[:])
	if length < lengthBase {
		return Frame{}, fmt.Errorf("%w: %v of %d bytes, shorter than a header", ErrProtocol, f.Kind, length)
	}
	n := int64(length) - lengthBase
	if n > int64(limit) {
		return Frame{}, fmt.Errorf("%w: %v of %d bytes, the limit is %d", ErrProtocol, f.Kind, n, limit)
	}
	if n == 0 {
		return f, nil
	}
	var body bytes.Buffer
	switch _, err := io.CopyN(&body, r, n); {
	case errors.Is(err, io.EOF):
		return Frame{}, io.ErrUnexpectedEOF
	case err != nil:
		return Frame{}, err
	}
	f.Body = body.Bytes()
	return f, nil
}
