package packet

import (
	"bytes"
	"fmt"
	"net/netip"
)

// Operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is an ARP message for IPv4 on Ethernet (RFC 826).
type ARP struct {
	Op        uint16
	SenderMAC MAC
	Sender    netip.Addr
	TargetMAC MAC
	Target    netip.Addr
}

// arpEthernetIPv4 is the start of the message: hardware type, protocol type, lengths.
var arpEthernetIPv4 = []byte{0, 1, 8, 0, 6, 4}

// Append appends the message, the payload of a frame.
func (a ARP) Append(b []byte) []byte {
	sender, target := addr4(a.Sender), addr4(a.Target)
	b = append(append(b, arpEthernetIPv4...), byte(a.Op>>8), byte(a.Op))
	b = append(append(b, a.SenderMAC[:]...), sender[:]...)
	return append(append(b, a.TargetMAC[:]...), target[:]...)
}

// ParseARP parses the payload of a frame, which may have padding.
func ParseARP(b []byte) (a ARP, err error) {
	if len(b) < 28 {
		return a, fmt.Errorf("ARP: %w: %d of 28 bytes", ErrShort, len(b))
	}
	if !bytes.Equal(b[:6], arpEthernetIPv4) {
		return a, fmt.Errorf("ARP is not for IPv4 on Ethernet: %x", b[:6])
	}
	return ARP{
		Op:        uint16(b[6])<<8 | uint16(b[7]),
		SenderMAC: MAC(b[8:]), Sender: netip.AddrFrom4([4]byte(b[14:])),
		TargetMAC: MAC(b[18:]), Target: netip.AddrFrom4([4]byte(b[24:])),
	}, nil
}

// Reply returns the reply to a request: the target address is at mac.
func (a ARP) Reply(mac MAC) ARP {
	return ARP{Op: ARPReply, SenderMAC: mac, Sender: a.Target, TargetMAC: a.SenderMAC, Target: a.Sender}
}
