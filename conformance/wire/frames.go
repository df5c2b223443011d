package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

const (
	ethernetHeaderLen = 14 // of Ethernet
	ipv6FragmentNext  = 44
)

// station has the addresses of the wire, and makes and parses its frames.
type station struct {
	mac, device packet.MAC
	addrs       []netip.Addr
	answersFor  func(netip.Addr) bool
	accept      func([]byte) bool
}

// newStation checks a configuration. own is the interface's address.
func newStation(cfg *EthernetConfig, own net.HardwareAddr) (s station, err error) {
	if cfg.MAC == nil {
		cfg.MAC = own
	}
	var errs []error
	for _, m := range []struct {
		name string
		from net.HardwareAddr
		to   *packet.MAC
	}{{"MAC", cfg.MAC, &s.mac}, {"Device", cfg.Device, &s.device}} {
		if len(m.from) != len(m.to) || m.from[0]&1 != 0 {
			errs = append(errs, fmt.Errorf("%s %q is not a unicast Ethernet address", m.name, m.from))
			continue
		}
		*m.to = packet.MAC(m.from)
	}
	if len(cfg.Addrs) == 0 {
		errs = append(errs, errors.New("Addrs is empty"))
	}
	s.addrs, s.answersFor, s.accept = slices.Clone(cfg.Addrs), cfg.AnswersFor, cfg.Accept
	if s.accept == nil {
		s.accept = isUDP
	}
	return s, errors.Join(errs...)
}

// isOurs reports whether the wire responds to address resolution for an address.
func (s *station) isOurs(a netip.Addr) bool {
	return slices.Contains(s.addrs, a) || s.answersFor != nil && s.answersFor(a)
}

// ethernetFrame makes the frame for an IP packet, to the device or a multicast group.
func (s *station) ethernetFrame(ip []byte) []byte {
	h := packet.Ethernet{Dst: s.device, Src: s.mac, Type: s.etherType(ip)}
	if to, ok := destination(ip); ok {
		switch {
		case to.IsMulticast():
			h.Dst = packet.MulticastMAC(to)
		case to == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			h.Dst = packet.Broadcast
		}
	}
	return h.Append(make([]byte, 0, ethernetHeaderLen+len(ip)), ip)
}

// etherType returns the type for the IP version in a packet's header. Packets with an
// invalid version get the type of the wire's first address.
func (s *station) etherType(ip []byte) uint16 {
	six := s.addrs[0].Is6()
	if len(ip) > 0 {
		switch ip[0] >> 4 {
		case 4:
			six = false
		case 6:
			six = true
		}
	}
	if six {
		return packet.EtherTypeIPv6
	}
	return packet.EtherTypeIPv4
}

func destination(ip []byte) (a netip.Addr, ok bool) {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(ip[16:])), true
	case len(ip) >= 40 && ip[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(ip[24:])), true
	}
	return a, false
}

// isUDP reports whether an IP packet is UDP, or a fragment of UDP.
func isUDP(ip []byte) bool {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return ip[9] == packet.ProtocolUDP
	case len(ip) >= 40 && ip[0]>>4 == 6:
		return ip[6] == packet.ProtocolUDP || ip[6] == ipv6FragmentNext && len(ip) > 40 && ip[40] == packet.ProtocolUDP
	}
	return false
}

// handleFrame parses a frame from the device. It returns the IP packet if it is accepted,
// and the response to an ARP request or neighbour solicitation.
func (s *station) handleFrame(frame []byte) (ip, answer []byte) {
	h, payload, err := packet.ParseEthernet(frame)
	if err != nil || h.Src == s.mac {
		return nil, nil
	}
	switch h.Type {
	case packet.EtherTypeARP:
		return nil, s.answerARP(payload)
	case packet.EtherTypeIPv4, packet.EtherTypeIPv6:
		answer = s.answerNeighbor(h, payload)
		if s.accept(payload) {
			ip = payload
		}
	}
	return ip, answer
}

// answerARP returns the reply to an ARP request. It ignores probes (RFC 5227), whose
// sender address is unspecified.
func (s *station) answerARP(b []byte) []byte {
	q, err := packet.ParseARP(b)
	if err != nil || q.Op != packet.ARPRequest || q.Sender.IsUnspecified() || q.Sender == q.Target || !s.isOurs(q.Target) {
		return nil
	}
	h := packet.Ethernet{Dst: q.SenderMAC, Src: s.mac, Type: packet.EtherTypeARP}
	return h.Append(nil, q.Reply(s.mac).Append(nil))
}

// answerNeighbor returns the reply to a neighbour solicitation.
func (s *station) answerNeighbor(from packet.Ethernet, b []byte) []byte {
	if len(b) < 40 || b[0]>>4 != 6 || b[6] != packet.ProtocolICMPv6 {
		return nil
	}
	q, n, err := packet.ParseNeighbor(b)
	if err != nil || n.Type != packet.NeighborSolicitation || q.Src.IsUnspecified() || !s.isOurs(n.Target) {
		return nil
	}
	h := packet.Ethernet{Dst: from.Src, Src: s.mac, Type: packet.EtherTypeIPv6}
	return h.Append(nil, n.Answer(nil, q, s.mac))
}

// allNodes is the all-nodes multicast address.
var allNodes = netip.MustParseAddr("ff02::1")

// announcements are gratuitous ARP requests and unsolicited neighbour advertisements. They
// replace entries of an earlier wire in neighbour tables, which last up to a minute.
func (s *station) announcements() (frames [][]byte) {
	for _, a := range s.addrs {
		h := packet.Ethernet{Dst: packet.Broadcast, Src: s.mac, Type: packet.EtherTypeARP}
		if a.Is4() {
			frames = append(frames, h.Append(nil, packet.ARP{Op: packet.ARPRequest, SenderMAC: s.mac, Sender: a, Target: a}.Append(nil)))
			continue
		}
		n := packet.Neighbor{Type: packet.NeighborAdvertisement, Override: true, Target: a, MAC: s.mac}
		h.Dst, h.Type = packet.MulticastMAC(allNodes), packet.EtherTypeIPv6
		frames = append(frames, h.Append(nil, n.Append(nil, a, allNodes)))
	}
	return frames
}
