package agent

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Frames are a length, a type and a body. The length counts what follows it.
const (
	frameGreeting = 1 // greeting
	frameBeat     = 2 // nothing: the sender is alive
	frameMemory   = 3 // records
	frameCall     = 4 // memory frames got, call number, method, arguments
	frameReply    = 5 // call number, failure, results
	frameBye      = 6 // why the sender ends the connection, as text
)

const (
	frameHeaderLen = 5
	// maxFrameLen is the longest type and body together.
	maxFrameLen = 4 << 20
)

// newFrame returns the beginning of a frame, with room.
func newFrame(kind byte, room int) []byte {
	b := make([]byte, frameHeaderLen, frameHeaderLen+room)
	b[4] = kind
	return b
}

// seal sets the length of a frame that is complete.
func seal(frame []byte) { binary.BigEndian.PutUint32(frame, uint32(len(frame)-4)) }

// tooLong says whether a frame is longer than the other end takes.
func tooLong(frame []byte) bool { return len(frame)-4 > maxFrameLen }

// readFrame reads a frame. The body is the caller's.
func readFrame(r *bufio.Reader) (kind byte, body []byte, err error) {
	var header [frameHeaderLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n == 0 || n > maxFrameLen {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, and at most %d are allowed", errBadMessage, n, maxFrameLen)
	}
	body = make([]byte, n-1)
	_, err = io.ReadFull(r, body)
	return header[4], body, err
}
