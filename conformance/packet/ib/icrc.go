package ib

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

const (
	udpLen  = 8 // the header
	bthLen  = 12
	icrcLen = 4
)

// ICRC computes the invariant CRC of an IP packet whose last four bytes are the ICRC. It
// uses the length of ip, not length fields. Variant fields count as ones: IPv4 TOS, TTL and
// checksum; IPv6 traffic class, flow label and hop limit; the UDP checksum; the BTH byte
// with FECN and BECN. Eight bytes of ones replace the LRH, which RoCEv2 does not have.
func ICRC(ip []byte) (uint32, error) {
	h, size, err := packet.ParseIPHeader(ip)
	if err != nil {
		return 0, err
	}
	if len(ip) < size+udpLen+bthLen+icrcLen {
		return 0, fmt.Errorf("ICRC: %w: %d bytes after the IP header, not %d", packet.ErrShort, len(ip)-size, udpLen+bthLen+icrcLen)
	}
	return icrcOf(ip, size, h.Is6()), nil
}

// ICRCBehind computes the ICRC of an IPv6 packet whose headers before UDP, extension headers
// included, have headerLen bytes.
func ICRCBehind(ip []byte, headerLen int) uint32 { return icrcOf(ip, headerLen, true) }

// icrcOf computes the ICRC of an IP packet by the length and family of its header, whatever the
// version field says. Variant fields, and eight bytes in place of an LRH, count as ones.
func icrcOf(ip []byte, headerLen int, isIPv6 bool) uint32 {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ip[:len(ip)-icrcLen]...)
	h := b[8:]
	if isIPv6 {
		h[0] |= 0x0f    // traffic class
		setOnes(h[1:4]) // traffic class and flow label
		setOnes(h[7:8]) // hop limit
	} else {
		setOnes(h[1:2])   // TOS
		setOnes(h[8:9])   // TTL
		setOnes(h[10:12]) // checksum
	}
	setOnes(h[headerLen+6 : headerLen+8])               // UDP checksum
	setOnes(h[headerLen+udpLen+4 : headerLen+udpLen+5]) // FECN, BECN and reserved bits of the BTH
	return crc32.ChecksumIEEE(b)
}

func setOnes(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// ErrICRC is the error of a wrong ICRC.
var ErrICRC = errors.New("wrong ICRC")

// CheckICRC returns an error if the ICRC of a parsed packet is wrong, or was not parsed.
func (p Packet) CheckICRC() error {
	if p.raw == nil || p.ICRC == nil {
		return errors.New("no ICRC: the packet was not parsed completely")
	}
	correct, err := ICRC(p.raw[:len(p.raw)-len(p.Behind)])
	if err != nil {
		return err
	}
	if correct != *p.ICRC {
		return fmt.Errorf("%w: %#08x, want %#08x", ErrICRC, *p.ICRC, correct)
	}
	return nil
}
