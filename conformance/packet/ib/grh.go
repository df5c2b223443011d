package ib

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// GRHLen is the length of the GRH area before the payload of a received datagram.
const GRHLen = 40

// ParseGRH parses the GRH area of a received datagram: an IPv6 header, or 20 undefined
// bytes and an IPv4 header. family is 4 or 6, since the undefined bytes may look like IPv6.
func ParseGRH(buf []byte, family int) (packet.IP, error) {
	if len(buf) < GRHLen {
		return packet.IP{}, fmt.Errorf("GRH area: %w: %d of %d bytes", packet.ErrShort, len(buf), GRHLen)
	}
	header := buf[:GRHLen]
	if family == 4 {
		header = buf[20:GRHLen]
	}
	h, _, err := packet.ParseIPHeader(header)
	if err == nil && int(*h.Version) != family {
		err = fmt.Errorf("GRH area: IP version %d, not %d", *h.Version, family)
	}
	if err != nil {
		return h, fmt.Errorf("GRH area %x: %w", header, err)
	}
	return h, nil
}
