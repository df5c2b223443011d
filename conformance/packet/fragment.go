package packet

import (
	"bytes"
	"fmt"
)

// Fragments splits an IPv4 packet into two fragments. The first carries n bytes of the
// payload; n is a multiple of 8.
func Fragments(ip []byte, n int) ([][]byte, error) {
	h, payload, _, err := ParseIP(ip)
	if err != nil {
		return nil, fmt.Errorf("packet to be fragmented: %w", err)
	}
	h = h.WithoutComputed()
	first, rest := h, h
	first.DF, first.MF = new(false), new(true)
	rest.DF, rest.FragOff = new(false), new(uint16(n/8))
	return [][]byte{first.Append(nil, bytes.Clone(payload[:n])), rest.Append(nil, bytes.Clone(payload[n:]))}, nil
}
