package uswitch

import "encoding/binary"

// vnetLen is the size of struct virtio_net_hdr, which PACKET_VNET_HDR puts before each frame.
const vnetLen = 10

const (
	vnetNeedsChecksum = 1

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDP   = 5    // VIRTIO_NET_HDR_GSO_UDP_L4
	gsoECN   = 0x80 // only the first segment has the CWR flag
)

// vnetHeader is struct virtio_net_hdr.
type vnetHeader struct {
	flags, gsoType                            uint8
	headerLen, gsoSize, csumStart, csumOffset uint16
}

// parseVnet decodes a struct virtio_net_hdr.
func parseVnet(b []byte) vnetHeader {
	n := binary.NativeEndian
	return vnetHeader{
		flags: b[0], gsoType: b[1],
		headerLen: n.Uint16(b[2:]), gsoSize: n.Uint16(b[4:]), csumStart: n.Uint16(b[6:]), csumOffset: n.Uint16(b[8:]),
	}
}

// put encodes the header in the first vnetLen bytes of b.
func (v *vnetHeader) put(b []byte) {
	n := binary.NativeEndian
	b[0], b[1] = v.flags, v.gsoType
	n.PutUint16(b[2:], v.headerLen)
	n.PutUint16(b[4:], v.gsoSize)
	n.PutUint16(b[6:], v.csumStart)
	n.PutUint16(b[8:], v.csumOffset)
}

// matches reports whether the GSO type agrees with the protocols of the frame's headers.
func (v *vnetHeader) matches(l *layout) bool {
	switch v.gsoType &^ gsoECN {
	case gsoUDP:
		return l.proto == protoUDP
	case gsoTCPv4:
		return l.proto == protoTCP && !l.v6
	case gsoTCPv6:
		return l.proto == protoTCP && l.v6
	}
	return false
}
