package interop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// BufferInfoLen is the size of the one message that rping sends.
const BufferInfoLen = 16

// Sizes that rping accepts for its data (-S). Its minimum follows from its heading;
// 65536, which it calls valid, it refuses.
const (
	MinPingSize = 23
	MaxPingSize = 65535
)

// ErrBufferInfo is what errors.Is finds where a peer's message is not one.
var ErrBufferInfo = errors.New("not a buffer advertisement")

// BufferInfo is the message of rping: the client tells the server where it may
// read or write. The server answers with one too, as a go-ahead, whose contents
// mean nothing.
type BufferInfo struct {
	Addr uint64
	RKey verbs.RKey
	Size uint32
}

// Append appends m in wire order and returns the extended slice.
func (m BufferInfo) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Addr)
	b = binary.BigEndian.AppendUint32(b, uint32(m.RKey))
	return binary.BigEndian.AppendUint32(b, m.Size)
}

// Parse decodes m from b, which must hold it and nothing else: it is a whole
// message.
func (m *BufferInfo) Parse(b []byte) error {
	if len(b) != BufferInfoLen {
		return fmt.Errorf("%w: %d bytes, want %d", ErrBufferInfo, len(b), BufferInfoLen)
	}
	m.Addr = binary.BigEndian.Uint64(b)
	m.RKey = verbs.RKey(binary.BigEndian.Uint32(b[8:]))
	m.Size = binary.BigEndian.Uint32(b[12:])
	return nil
}

// RPingText writes the data of rping's ping number n over b: a heading, then the
// characters from A to z in turn, from one further with each ping, and a NUL.
func RPingText(b []byte, n int) {
	const first, count = 'A', 'z' - 'A' + 1
	head := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for i := head; i < len(b); i++ {
		b[i] = byte(first + (n+i-head)%count)
	}
	b[len(b)-1] = 0
}

// checkPing reports where got differs from ping number n.
func checkPing(got []byte, n int) error {
	want := make([]byte, len(got))
	RPingText(want, n)
	if bytes.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("ping %d: %w", n, check(got, func(i int) byte { return want[i] }))
}
