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

// afterLength is how much of the header the length field counts.
const afterLength = HeaderLen - 4

// ErrProtocol is what errors.Is finds when the peer breaks the rules of the
// channel.
var ErrProtocol = errors.New("control channel")

// Frame is one message on the channel.
type Frame struct {
	Kind Kind
	Num  uint64
	Body []byte
}

// Append appends f as it is sent and returns the extended slice.
func (f Frame) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(afterLength+len(f.Body)))
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint64(b, f.Num)
	return append(b, f.Body...)
}

// Limits says how long the bodies may be that come from a peer. A kind that is
// absent may not come at all.
type Limits map[Kind]int

// Read reads one frame. It returns io.EOF if the peer has closed the channel
// between two frames, io.ErrUnexpectedEOF within one, and ErrProtocol for what
// limits forbids. The body belongs to the caller, and memory is taken for it only
// as its bytes arrive: a length alone costs nothing.
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
	if length < afterLength {
		return Frame{}, fmt.Errorf("%w: %v of %d bytes, shorter than a header", ErrProtocol, f.Kind, length)
	}
	n := int64(length) - afterLength
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
