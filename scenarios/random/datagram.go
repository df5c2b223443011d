package random

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// grhLen is the length of the GRH in a receive.
func (l *lane) grhLen() int {
	if l.spec.Service.Datagram() {
		return verbs.GRHLen
	}
	return 0
}

// anyLength is the length of a packet that the GRH does not determine.
const anyLength = -1

// ipPayloadLen is the payload length of the IP packet that the GRH of a datagram reports.
func ipPayloadLen(m *traffic.TransportTraits, o *op) int {
	const udp, bth, deth, icrc = 8, 12, 8, 4
	if m.PortInGRH {
		return udp + o.size // as if the message had been sent over UDP alone
	}
	carried := udp + bth + deth + (o.size+3)&^3 + icrc
	if o.withImm() {
		carried += 4
	}
	return carried
}

// datagramPort is the default UDP port of datagram-iWARP.
const datagramPort = 65041

// checkSource checks the source of a datagram in its completion and GRH. It returns the
// expected and the actual value, or empty strings.
func (l *lane) checkSource(wc *verbs.WC, area []byte, carried int) (want, got string) {
	peer, m := &l.end.peer, &l.end.w.Traits
	if wc.Flags&verbs.WCWithGRH == 0 || wc.SrcQP != peer.Lanes[l.index].QPN {
		return fmt.Sprintf("a global header and source QP %#x", peer.Lanes[l.index].QPN), fmt.Sprintf("flags %#x, source QP %#x", wc.Flags, wc.SrcQP)
	}
	reply, err := verbs.InitAHFromWC(1, l.end.env.GIDIndex, wc, area)
	if err != nil {
		return "an address to reply to", err.Error()
	}
	if reply.GRH.DGID != peer.GID {
		return fmt.Sprintf("source %v in the header area", peer.GID), reply.GRH.DGID.String()
	}
	h, err := parseGRH(area)
	if err != nil {
		return "an IP header in the header area", err.Error()
	}
	switch {
	case h.dst != l.end.gid.Addr():
		return fmt.Sprintf("destination %v in the header area", l.end.gid), h.dst.String()
	case carried != anyLength && h.payloadLen != carried:
		return fmt.Sprintf("an IP packet that carries %d bytes", carried), fmt.Sprint(h.payloadLen)
	case h.protocol != 17:
		return "UDP (17) in the header area", fmt.Sprint(h.protocol)
	case l.spec.TrafficClass != 0 && h.tclass>>2 != l.spec.TrafficClass>>2:
		return fmt.Sprintf("DSCP %d", l.spec.TrafficClass>>2), fmt.Sprint(h.tclass >> 2)
	case m.PortInGRH && binary.BigEndian.Uint16(area[2:]) != datagramPort:
		return fmt.Sprintf("source port %d in octets 2 and 3 of the header area", datagramPort), fmt.Sprint(binary.BigEndian.Uint16(area[2:]))
	}
	return "", ""
}

// ipHeader holds the fields of the GRH.
type ipHeader struct {
	dst        netip.Addr
	payloadLen int
	protocol   uint8
	tclass     uint8
}

// parseGRH parses an IPv6 header, or an IPv4 header in the last twenty bytes.
func parseGRH(area []byte) (h ipHeader, err error) {
	be := binary.BigEndian
	if area[20]>>4 == 4 && area[20]&0xf == 5 && area[0]>>4 != 6 {
		b := area[20:]
		h = ipHeader{netip.AddrFrom4([4]byte(b[16:20])), int(be.Uint16(b[2:])) - 20, b[9], b[1]}
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(be.Uint16(b[i:]))
		}
		if sum = sum&0xffff + sum>>16; sum != 0xffff {
			return h, fmt.Errorf("IPv4 header checksum is wrong by %#x", ^sum&0xffff)
		}
		return h, nil
	}
	if area[0]>>4 != 6 {
		return h, fmt.Errorf("version %d", area[0]>>4)
	}
	return ipHeader{netip.AddrFrom16([16]byte(area[24:40])), int(be.Uint16(area[4:])), area[6], area[0]<<4 | area[1]>>4}, nil
}
