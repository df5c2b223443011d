package ib

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// GRHLen is the length of the area in front of the payload of a received datagram.
const GRHLen = 40

// ParseGRH reads the area in front of a received datagram: the IPv6 header that it
// came with, or 20 bytes that mean nothing and the IPv4 header. family is 4 or 6: an
// area of IPv4 may begin like one of IPv6.
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
