package wire

import "fmt"

// ServiceID is the service that a REQ or SIDR_REQ requests.
type ServiceID uint64

// PortSpace is an rdma_cm port space: the protocol number in the service ID of an IP port.
type PortSpace uint8

// Port spaces of rdma_cm.
const (
	PortSpaceIPoIB PortSpace = 0x02
	PortSpaceTCP   PortSpace = 0x06
	PortSpaceUDP   PortSpace = 0x11
	PortSpaceIB    PortSpace = 0x3F
)

// UDQKey is the Q_Key of rdma_cm's UD queue pairs.
const UDQKey uint32 = 0x01234567

const ipServicePrefix = 1 << 24

// IPService returns the service ID that rdma_cm uses for a port.
func IPService(ps PortSpace, port uint16) ServiceID {
	return ipServicePrefix | ServiceID(ps)<<16 | ServiceID(port)
}

// IsIP reports whether s is the service ID of an IP port. The private data of its REQ or
// SIDR_REQ starts with a CMAHeader.
func (s ServiceID) IsIP() bool { return s>>24 == ipServicePrefix>>24 }

// PortSpace returns the port space of an IP service.
func (s ServiceID) PortSpace() PortSpace { return PortSpace(s >> 16) }

// Port returns the port of an IP service.
func (s ServiceID) Port() uint16 { return uint16(s) }

// String prints an IP service as port space and port, any other as a number.
func (s ServiceID) String() string {
	if !s.IsIP() {
		return fmt.Sprintf("service %#016x", uint64(s))
	}
	return fmt.Sprintf("service %v:%d", s.PortSpace(), s.Port())
}

var portSpaceNames = map[PortSpace]string{PortSpaceIPoIB: "ipoib", PortSpaceTCP: "tcp", PortSpaceUDP: "udp", PortSpaceIB: "ib"}

// String prints the port space's name.
func (p PortSpace) String() string {
	if name, ok := portSpaceNames[p]; ok {
		return name
	}
	return fmt.Sprintf("%#02x", uint8(p))
}

// FlowLabel returns the flow label of rdma_cm for the path between two ports.
func FlowLabel(srcPort, dstPort uint16) uint32 {
	return (uint32(srcPort)*31 + uint32(dstPort)) & 0xFFFFF
}
