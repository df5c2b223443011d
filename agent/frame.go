package agent

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is a length, a type and a body. The length counts type and body.
const (
	frameGreeting  = 1 // greeting
	frameHeartbeat = 2 // empty: heartbeat
	frameMemory    = 3 // records
	frameCall      = 4 // number of received memory frames, call number, method, arguments
	frameReply     = 5 // call number, failure, results
	frameClose     = 6 // reason of closing, as text
)

const (
	frameHeaderLen = 5
	// maxFrameLen is the maximum length of type and body.
	maxFrameLen = 4 << 20
)

// newFrame returns the start of a frame.
func newFrame(kind byte, room int) []byte {
	b := make([]byte, frameHeaderLen, frameHeaderLen+room)
	b[4] = kind
	return b
}

// seal sets the length of a complete frame.
func seal(frame []byte) { binary.BigEndian.PutUint32(frame, uint32(len(frame)-4)) }

// tooLong reports whether a frame exceeds the limit.
func tooLong(frame []byte) bool { return len(frame)-4 > maxFrameLen }

// readFrame reads a frame. The body is newly allocated.
func readFrame(r *bufio.Reader) (kind byte, body []byte, err error) {
	var header [frameHeaderLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n == 0 || n > maxFrameLen {
		return 0, nil, fmt.Errorf("%w: frame of %d bytes exceeds the limit of %d", errBadMessage, n, maxFrameLen)
	}
	body = make([]byte, n-1)
	_, err = io.ReadFull(r, body)
	return header[4], body, err
}
