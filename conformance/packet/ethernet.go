package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// EtherTypes.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd
)

// minFrame is the minimum length of a frame without its FCS.
const minFrame = 60

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// String formats the address as 02:00:00:00:00:01.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MulticastMAC returns the MAC of an IP multicast group (RFC 1112, RFC 2464).
func MulticastMAC(group netip.Addr) MAC {
	if group = group.Unmap(); group.Is4() {
		a := group.As4()
		return MAC{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}
	}
	a := group.As16()
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// Ethernet is the header of a frame without a VLAN tag.
type Ethernet struct {
	Dst, Src MAC
	Type     uint16
}

// Append appends the frame with this header and the payload, padded to the minimum length,
// without FCS.
func (h Ethernet) Append(b, payload []byte) []byte {
	at := len(b)
	b = append(append(b, h.Dst[:]...), h.Src[:]...)
	b = binary.BigEndian.AppendUint16(b, h.Type)
	b = append(b, payload...)
	if short := minFrame - (len(b) - at); short > 0 {
		b = append(b, make([]byte, short)...)
	}
	return b
}

// ParseEthernet parses the header of a frame. The payload includes padding.
func ParseEthernet(b []byte) (h Ethernet, payload []byte, err error) {
	if len(b) < 14 {
		return h, nil, fmt.Errorf("Ethernet header: %w: %d of 14 bytes", ErrShort, len(b))
	}
	h = Ethernet{Dst: MAC(b), Src: MAC(b[6:]), Type: binary.BigEndian.Uint16(b[12:])}
	if h.Type == EtherTypeVLAN {
		return h, b[14:], errors.New("unexpected VLAN tag")
	}
	return h, b[14:], nil
}
