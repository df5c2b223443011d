package etherwire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

const (
	headerLen        = 14 // of Ethernet
	ipv6FragmentNext = 44
)

// station is who we are on the wire, without the wire.
type station struct {
	mac, device packet.MAC
	addrs       []netip.Addr
	claims      func(netip.Addr) bool
	keep        func([]byte) bool
}

// newStation reads a configuration. own is the interface's address.
func newStation(cfg *Config, own net.HardwareAddr) (s station, err error) {
	if cfg.MAC == nil {
		cfg.MAC = own
	}
	if cfg.Epoch.IsZero() {
		cfg.Epoch = time.Now()
	}
	var errs []error
	for _, m := range []struct {
		name string
		from net.HardwareAddr
		to   *packet.MAC
	}{{"MAC", cfg.MAC, &s.mac}, {"Device", cfg.Device, &s.device}} {
		if len(m.from) != len(m.to) || m.from[0]&1 != 0 {
			errs = append(errs, fmt.Errorf("%s %q is not the Ethernet address of a station", m.name, m.from))
			continue
		}
		*m.to = packet.MAC(m.from)
	}
	if len(cfg.Addrs) == 0 {
		errs = append(errs, errors.New("no Addrs: nobody would send here"))
	}
	s.addrs, s.claims, s.keep = slices.Clone(cfg.Addrs), cfg.Claims, cfg.Keep
	if s.keep == nil {
		s.keep = isUDP
	}
	return s, errors.Join(errs...)
}

// ours reports whether questions for an address are for us to answer.
func (s *station) ours(a netip.Addr) bool {
	return slices.Contains(s.addrs, a) || s.claims != nil && s.claims(a)
}

// frame makes the frame that takes an IP packet to the device, or to the group that
// it is for.
func (s *station) frame(ip []byte) []byte {
	h := packet.Ethernet{Dst: s.device, Src: s.mac, Type: s.etherType(ip)}
	if to, ok := destination(ip); ok {
		switch {
		case to.IsMulticast():
			h.Dst = packet.MulticastMAC(to)
		case to == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			h.Dst = packet.Broadcast
		}
	}
	return h.Append(make([]byte, 0, headerLen+len(ip)), ip)
}

// etherType is that of the version that a packet names. One that names none is sent
// as what we talk.
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

// isUDP reports whether an IP packet is of UDP, or a fragment of such a one.
func isUDP(ip []byte) bool {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return ip[9] == packet.ProtocolUDP
	case len(ip) >= 40 && ip[0]>>4 == 6:
		return ip[6] == packet.ProtocolUDP || ip[6] == ipv6FragmentNext && len(ip) > 40 && ip[40] == packet.ProtocolUDP
	}
	return false
}

// take looks at a frame of the device's: it returns the IP packet if it is one to be
// kept, and the frame to answer with if it is a question for one of our addresses.
func (s *station) take(frame []byte) (ip, answer []byte) {
	h, payload, err := packet.ParseEthernet(frame)
	if err != nil || h.Src == s.mac {
		return nil, nil
	}
	switch h.Type {
	case packet.EtherTypeARP:
		return nil, s.answerARP(payload)
	case packet.EtherTypeIPv4, packet.EtherTypeIPv6:
		answer = s.answerNeighbor(h, payload)
		if s.keep(payload) {
			ip = payload
		}
	}
	return ip, answer
}

// answerARP answers a question. One without a sender is by somebody who wants the
// address for himself, and is left to it.
func (s *station) answerARP(b []byte) []byte {
	q, err := packet.ParseARP(b)
	if err != nil || q.Op != packet.ARPRequest || q.Sender.IsUnspecified() || q.Sender == q.Target || !s.ours(q.Target) {
		return nil
	}
	h := packet.Ethernet{Dst: q.SenderMAC, Src: s.mac, Type: packet.EtherTypeARP}
	return h.Append(nil, q.Reply(s.mac).Append(nil))
}

// answerNeighbor is the same for IPv6.
func (s *station) answerNeighbor(from packet.Ethernet, b []byte) []byte {
	if len(b) < 40 || b[0]>>4 != 6 || b[6] != packet.ProtocolICMPv6 {
		return nil
	}
	q, n, err := packet.ParseNeighbor(b)
	if err != nil || n.Type != packet.NeighborSolicitation || q.Src.IsUnspecified() || !s.ours(n.Target) {
		return nil
	}
	h := packet.Ethernet{Dst: from.Src, Src: s.mac, Type: packet.EtherTypeIPv6}
	return h.Append(nil, n.Answer(nil, q, s.mac))
}

// everybody is the group of all hosts of a link.
var everybody = netip.MustParseAddr("ff02::1")

// announcements are the frames that tell the device's host, and switches between, where
// our addresses are now. A host that knew another station at one of them, such as a judge
// before us, would go on sending there for as long as a minute.
func (s *station) announcements() (frames [][]byte) {
	for _, a := range s.addrs {
		h := packet.Ethernet{Dst: packet.Broadcast, Src: s.mac, Type: packet.EtherTypeARP}
		if a.Is4() {
			frames = append(frames, h.Append(nil, packet.ARP{Op: packet.ARPRequest, SenderMAC: s.mac, Sender: a, Target: a}.Append(nil)))
			continue
		}
		n := packet.Neighbor{Type: packet.NeighborAdvertisement, Override: true, Target: a, MAC: s.mac}
		h.Dst, h.Type = packet.MulticastMAC(everybody), packet.EtherTypeIPv6
		frames = append(frames, h.Append(nil, n.Append(nil, a, everybody)))
	}
	return frames
}
