package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind is the type of a frame. Kinds below FirstProtocolKind have the same meaning in all
// protocols.
type Kind uint8

// Kinds.
const (
	Hello  Kind = 1 + iota // the first frame; Num is the version, the body JSON
	Close                  // the last frame; the body is an error, empty on success
	Ping                   // a heartbeat
	Pong                   // answers a Ping or a Signal; Num is that of the frame
	Call                   // a request; Num is chosen by the caller
	Reply                  // answers the Call with the same Num
	Stdin                  // input of a program, or of a file; empty at its end
	Stdout                 // output of a program
	Stderr                 // output of a program
	Signal                 // Num is the number of a signal
	Exit                   // Num is the exit code of a program

	FirstProtocolKind Kind = 32 // the first kind that a protocol may define
)

// String returns the name of a kind of this package, and the number of any other kind.
func (k Kind) String() string {
	names := [...]string{"kind 0x00", "hello", "close", "ping", "pong", "call", "reply", "stdin", "stdout", "stderr", "signal", "exit"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind 0x%02x", uint8(k))
}

const (
	// headerLen is the length of a frame without its body.
	headerLen = 13
	// lengthBase is the value of the length field for an empty body.
	lengthBase = headerLen - 4
	// maxAtOnce limits the memory that Read allocates before a body has arrived.
	maxAtOnce = 256 << 10
)

// MaxReason is the usual limit of Close frames.
const MaxReason = 64 << 10

// ErrProtocol means that the peer violated the protocol.
var ErrProtocol = errors.New("protocol violation")

// Frame is a frame of the control channel.
type Frame struct {
	Kind Kind
	Num  uint64
	Body []byte
}

// Append appends the encoded frame to b and returns the extended slice.
func (f Frame) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(lengthBase+len(f.Body)))
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint64(b, f.Num)
	return append(b, f.Body...)
}

// Limits are the kinds that an end accepts, with the largest body of each.
type Limits map[Kind]int

// read reads one frame. It returns io.EOF if the peer closed the channel between two frames,
// io.ErrUnexpectedEOF within a frame, and ErrProtocol for a frame that limits does not allow. names
// are the names of the protocol's own kinds, from FirstProtocolKind on, for errors.
func read(r io.Reader, limits Limits, names []string) (Frame, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(h[4]), Num: binary.BigEndian.Uint64(h[5:])}
	name := f.Kind.String()
	if i := int(f.Kind) - int(FirstProtocolKind); i >= 0 && i < len(names) {
		name = names[i]
	}
	limit, ok := limits[f.Kind]
	if !ok {
		return Frame{}, fmt.Errorf("%w: unexpected frame: %s (the first bytes are %x)", ErrProtocol, name, h[:8])
	}
	length := binary.BigEndian.Uint32(h[:])
	if length < lengthBase {
		return Frame{}, fmt.Errorf("%w: %s of %d bytes, shorter than a header", ErrProtocol, name, length)
	}
	n := int64(length) - lengthBase // the length field also counts kind and number
	if n > int64(limit) {
		return Frame{}, fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrProtocol, name, n, limit)
	}
	if n == 0 {
		return f, nil
	}
	var err error
	if n <= maxAtOnce {
		f.Body = make([]byte, n)
		_, err = io.ReadFull(r, f.Body)
	} else {
		var body bytes.Buffer
		body.Grow(maxAtOnce) // and more as the body arrives, in case the length is wrong
		_, err = io.CopyN(&body, r, n)
		f.Body = body.Bytes()
	}
	switch {
	case errors.Is(err, io.EOF):
		return Frame{}, io.ErrUnexpectedEOF
	case err != nil:
		return Frame{}, err
	}
	return f, nil
}
