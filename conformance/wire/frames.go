package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

const ethernetHeaderLen = 14

// station has the addresses of the wire, and makes and parses its frames.
type station struct {
	mac, device packet.MAC
	addrs       []netip.Addr
	answersFor  func(netip.Addr) bool
	accept      func([]byte) bool
}

// newStation returns the station, the wire's end of the Ethernet link, that cfg describes, or an
// error if cfg is invalid. The default of cfg.MAC is interfaceMAC.
func newStation(cfg *EthernetConfig, interfaceMAC net.HardwareAddr) (s station, err error) {
	if cfg.MAC == nil {
		cfg.MAC = interfaceMAC
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
		errs = append(errs, errors.New("Addrs is empty: the wire needs an address"))
	}
	s.addrs, s.answersFor, s.accept = slices.Clone(cfg.Addrs), cfg.AnswersFor, cfg.Accept
	if s.accept == nil {
		s.accept = isUDP
	}
	return s, errors.Join(errs...)
}

// isOurs reports whether the wire answers ARP requests and neighbour solicitations for an address.
func (s *station) isOurs(a netip.Addr) bool {
	return slices.Contains(s.addrs, a) || s.answersFor != nil && s.answersFor(a)
}

// ethernetFrame returns the frame for an IP packet. It goes to the device, unless the destination
// of the packet is a multicast or broadcast address.
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
	version := uint8(0)
	if len(ip) > 0 {
		version = ip[0] >> 4
	}
	if version == 6 || version != 4 && s.addrs[0].Is6() {
		return packet.EtherTypeIPv6
	}
	return packet.EtherTypeIPv4
}

// destination returns the destination address of an IP packet; false if its header is invalid.
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
		return ip[6] == packet.ProtocolUDP || ip[6] == packet.ProtocolFragment && len(ip) > 40 && ip[40] == packet.ProtocolUDP
	}
	return false
}

// handleFrame parses a frame, unless it is our own. It returns the IP packet if s.accept selects
// it, and the response to an ARP request or neighbour solicitation.
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

// answerARP returns the reply to an ARP request for an address of ours, else nil. It ignores
// probes and announcements (RFC 5227): their sender is unspecified, or equals the target.
func (s *station) answerARP(b []byte) []byte {
	q, err := packet.ParseARP(b)
	if err != nil || q.Op != packet.ARPRequest || q.Sender.IsUnspecified() || q.Sender == q.Target || !s.isOurs(q.Target) {
		return nil
	}
	h := packet.Ethernet{Dst: q.SenderMAC, Src: s.mac, Type: packet.EtherTypeARP}
	return h.Append(nil, q.Reply(s.mac).Append(nil))
}

// answerNeighbor returns the reply to a neighbour solicitation for an address of ours, else nil. It
// ignores duplicate address detection, whose source is unspecified.
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

// announcements returns gratuitous ARP requests and unsolicited neighbour advertisements. They
// replace the MAC address that an earlier station had for the same IP addresses: the device would
// send to it for up to a minute.
func (s *station) announcements() (frames [][]byte) {
	for _, a := range s.addrs {
		h := packet.Ethernet{Dst: packet.Broadcast, Src: s.mac, Type: packet.EtherTypeARP}
		if a.Is4() {
			frames = append(frames, h.Append(nil, packet.ARP{Op: packet.ARPRequest, SenderMAC: s.mac, Sender: a, Target: a}.Append(nil)))
			continue
		}
		n := packet.Neighbor{Type: packet.NeighborAdvertisement, Override: true, Target: a, MAC: s.mac}
		h.Dst, h.Type = packet.MulticastMAC(netip.IPv6LinkLocalAllNodes()), packet.EtherTypeIPv6
		frames = append(frames, h.Append(nil, n.Append(nil, a, netip.IPv6LinkLocalAllNodes())))
	}
	return frames
}

// datagram has the fields that a socket can send, and reports of received datagrams.
type datagram struct {
	src, dst    netip.AddrPort
	tclass      uint8
	hopLimit    uint8
	flowLabel   uint32
	hasChecksum bool // it has a UDP checksum
	payload     []byte
}

// packet returns the IP packet, with defaults for fields that a socket neither sets nor reports.
func (d *datagram) packet() []byte {
	ip := packet.IP{Src: d.src.Addr().WithZone(""), Dst: d.dst.Addr().WithZone(""), TClass: &d.tclass, HopLimit: &d.hopLimit}
	if ip.Is6() {
		ip.FlowLabel = &d.flowLabel
	}
	udp := packet.UDP{SrcPort: new(d.src.Port()), DstPort: new(d.dst.Port())}
	if !d.hasChecksum {
		udp.Checksum = new(uint16(0))
	}
	return ip.Append(nil, udp.Append(nil, ip, d.payload))
}

// cannotSend returns the error for a packet that a socket cannot send.
func cannotSend(format string, args ...any) error {
	return fmt.Errorf("an ordinary UDP socket: %w: %s", conformance.ErrBenchCannot, fmt.Sprintf(format, args...))
}

// datagram returns the datagram that a socket must send for the wanted IP packet. It returns an
// error if the kernel would send a packet with other headers.
func (c *UDPConfig) datagram(wanted []byte) (*datagram, error) {
	ip, payload, padding, err := packet.ParseIP(wanted)
	if err != nil {
		return nil, cannotSend("%v", err)
	}
	if len(padding) > 0 {
		return nil, cannotSend("%d bytes after the packet, in its frame", len(padding))
	}
	if p := *ip.Protocol; p != packet.ProtocolUDP {
		return nil, cannotSend("IP protocol %d", p)
	}
	udp, data, trailing, err := packet.ParseUDP(payload)
	if err != nil {
		return nil, cannotSend("%v", err)
	}
	if len(trailing) > 0 {
		return nil, cannotSend("%d bytes after the datagram, in its packet", len(trailing))
	}
	d := &datagram{
		src: netip.AddrPortFrom(ip.Src, *udp.SrcPort), dst: netip.AddrPortFrom(ip.Dst, *udp.DstPort),
		tclass: *ip.TClass, hopLimit: *ip.HopLimit, hasChecksum: *udp.Checksum != 0, payload: data,
	}
	switch to := d.dst.Addr(); {
	case !slices.Contains(c.Addrs, d.src.Addr()):
		return nil, cannotSend("source address %v; this host has %v", d.src.Addr(), c.Addrs)
	case !to.IsMulticast() && !slices.Contains(c.Device, to):
		return nil, cannotSend("destination address %v; the device has %v", to, c.Device)
	case d.src.Port() == 0 || d.dst.Port() == 0:
		return nil, cannotSend("UDP port 0")
	case d.hopLimit == 0:
		return nil, cannotSend("a hop limit of 0")
	}
	made := d.packet()
	if !bytes.Equal(made, wanted) {
		return nil, cannotSend("%s", difference(made, ip, udp))
	}
	return d, nil
}

// difference describes how the packet that a socket would send differs from the wanted headers.
// Diff treats that packet as the expected one: only fields that a socket sends are compared.
func difference(made []byte, wantIP packet.IP, wantUDP packet.UDP) string {
	ip, payload, _, _ := packet.ParseIP(made)
	udp, _, _, _ := packet.ParseUDP(payload)
	var d packet.Differences
	withoutChecksum := ip // the checksum differs whenever another field does
	withoutChecksum.Checksum = nil
	withoutChecksum.Diff(&d, wantIP)
	if len(d) == 0 {
		ip.Diff(&d, wantIP)
	}
	udp.Diff(&d, wantUDP)
	if len(d) == 0 {
		return "it has headers that a socket does not send"
	}
	return "it sends " + d.Want() + ", not " + d.Got()
}
