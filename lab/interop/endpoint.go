package interop

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/fabrictest/fabrictest/verbs"
)

// EndpointLen is the size of an Endpoint on the side channel: 51 characters and
// the NUL that ends a C string.
const EndpointLen = len("0000:000000:000000:") + 2*16 + 1

// ErrEndpoint is what errors.Is finds where a peer's line is not an endpoint.
var ErrEndpoint = errors.New("not an endpoint line")

// Endpoint is one end of a ping-pong as the ibv_*_pingpong programs tell it to
// each other: lid:qpn:psn:gid, in hexadecimal digits of fixed width.
type Endpoint struct {
	LID uint16 // always 0 on Ethernet
	QPN verbs.QPN
	PSN uint32
	GID verbs.GID
}

// Append appends e's line, NUL included, and returns the extended slice.
func (e Endpoint) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%06x:%06x:", e.LID, uint32(e.QPN), e.PSN)
	b = hex.AppendEncode(b, e.GID[:])
	return append(b, 0)
}

// Parse decodes e from the front of b and returns the bytes that follow. Unlike
// the programs, which scan leniently, it insists on their exact form: anything
// else means that the two sides have lost step.
func (e *Endpoint) Parse(b []byte) (rest []byte, err error) {
	if len(b) < EndpointLen {
		return nil, fmt.Errorf("%w: %d of %d bytes", ErrEndpoint, len(b), EndpointLen)
	}
	line := b[:EndpointLen]
	if line[4] != ':' || line[11] != ':' || line[18] != ':' || line[51] != 0 {
		return nil, fmt.Errorf("%w: %q", ErrEndpoint, line)
	}
	lid, err1 := strconv.ParseUint(string(line[:4]), 16, 16)
	qpn, err2 := strconv.ParseUint(string(line[5:11]), 16, 24)
	psn, err3 := strconv.ParseUint(string(line[12:18]), 16, 24)
	_, err4 := hex.Decode(e.GID[:], line[19:51])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrEndpoint, line, err)
	}
	e.LID, e.QPN, e.PSN = uint16(lid), verbs.QPN(qpn), uint32(psn)
	return b[EndpointLen:], nil
}
