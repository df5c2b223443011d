package ib

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

const (
	udpLen  = 8
	bthLen  = 12
	icrcLen = 4
)

// ICRC computes the invariant CRC of an IP packet, of which the last four bytes are
// where it goes. It goes by the length of ip, not by lengths within. What may change on the way counts as ones: of IPv4 type of service,
// time to live and checksum; of IPv6 traffic class, flow label and hop limit; the
// checksum of UDP; and the byte of the BTH with the congestion bits. Eight bytes of
// ones stand for the link header that RoCEv2 has not.
func ICRC(ip []byte) (uint32, error) {
	h, size, err := packet.ParseIPHeader(ip)
	if err != nil {
		return 0, err
	}
	if len(ip) < size+udpLen+bthLen+icrcLen {
		return 0, fmt.Errorf("ICRC: %w: %d bytes behind the IP header, not %d", packet.ErrShort, len(ip)-size, udpLen+bthLen+icrcLen)
	}
	return icrc(ip, size, h.Is6()), nil
}

// icrc is ICRC where the IP header is known to have size bytes and the layout of
// IPv6 or not, whatever version it tells.
func icrc(ip []byte, size int, six bool) uint32 {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ip[:len(ip)-icrcLen]...)
	h := b[8:]
	if six {
		h[0] |= 0x0f
		ones(h[1:4])
		ones(h[7:8])
	} else {
		ones(h[1:2])
		ones(h[8:9])
		ones(h[10:12])
	}
	ones(h[size+6 : size+8])
	ones(h[size+udpLen+4 : size+udpLen+5])
	return crc32.ChecksumIEEE(b)
}

func ones(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// ErrICRC says that a packet's ICRC is not the right one.
var ErrICRC = errors.New("wrong ICRC")

// CheckICRC tells whether the ICRC that p came with is right. It is an error to ask
// for one that was not parsed.
func (p Packet) CheckICRC() error {
	if p.raw == nil || p.ICRC == nil {
		return errors.New("no ICRC: the packet was not parsed, or not to its end")
	}
	right, err := ICRC(p.raw[:len(p.raw)-len(p.Behind)])
	if err != nil {
		return err
	}
	if right != *p.ICRC {
		return fmt.Errorf("%w: %#08x, right is %#08x", ErrICRC, *p.ICRC, right)
	}
	return nil
}
