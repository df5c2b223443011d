package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// datagram has the fields that a socket can send, and reports of received datagrams.
type datagram struct {
	src, dst    netip.AddrPort
	tclass      uint8
	hopLimit    uint8
	flowLabel   uint32
	hasChecksum bool // it has a UDP checksum
	payload     []byte
}

// packet returns the IP packet of the datagram, with defaults for fields that a socket
// neither sets nor reports.
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

// cannot returns the error for a packet that a socket cannot send.
func cannot(format string, args ...any) error {
	return fmt.Errorf("an ordinary UDP socket: %w: %s", conformance.ErrBenchCannot, fmt.Sprintf(format, args...))
}

// datagram converts an IP packet for a socket. It returns an error unless the kernel would
// send exactly this packet.
func (c *UDPConfig) datagram(wanted []byte) (*datagram, error) {
	ip, payload, padding, err := packet.ParseIP(wanted)
	if err != nil {
		return nil, cannot("%v", err)
	}
	if len(padding) > 0 {
		return nil, cannot("%d bytes after the packet, in its frame", len(padding))
	}
	if p := *ip.Protocol; p != packet.ProtocolUDP {
		return nil, cannot("IP protocol %d", p)
	}
	udp, data, trailing, err := packet.ParseUDP(payload)
	if err != nil {
		return nil, cannot("%v", err)
	}
	if len(trailing) > 0 {
		return nil, cannot("%d bytes after the datagram, in its packet", len(trailing))
	}
	d := &datagram{
		src: netip.AddrPortFrom(ip.Src, *udp.SrcPort), dst: netip.AddrPortFrom(ip.Dst, *udp.DstPort),
		tclass: *ip.TClass, hopLimit: *ip.HopLimit, hasChecksum: *udp.Checksum != 0, payload: data,
	}
	if err := c.checkSendable(d); err != nil {
		return nil, err
	}
	made := d.packet()
	if !bytes.Equal(made, wanted) {
		return nil, cannot("%s", difference(made, ip, udp))
	}
	return d, nil
}

// checkSendable returns an error for source addresses that this host does not have, and
// destinations that are not the device's.
func (c *UDPConfig) checkSendable(d *datagram) error {
	to := d.dst.Addr()
	switch {
	case !slices.Contains(c.Addrs, d.src.Addr()):
		return cannot("source address %v; this host has %v", d.src.Addr(), c.Addrs)
	case !to.IsMulticast() && !slices.Contains(c.Device, to):
		return cannot("destination address %v; the device has %v", to, c.Device)
	case d.src.Port() == 0 || d.dst.Port() == 0:
		return cannot("UDP port 0")
	case d.hopLimit == 0:
		return cannot("a hop limit of 0")
	}
	return nil
}

// difference describes how a packet differs from the one that a socket sends.
func difference(made []byte, ip packet.IP, udp packet.UDP) string {
	can, payload, _, _ := packet.ParseIP(made)
	sends, _, _, _ := packet.ParseUDP(payload)
	var d packet.Differences
	can.Checksum = nil // report it only if no other field differs
	can.Diff(&d, ip)
	if len(d) == 0 {
		can, _, _ = packet.ParseIPHeader(made)
		can.Diff(&d, ip)
	}
	sends.Diff(&d, udp)
	if len(d) == 0 {
		return "it has headers that a socket does not send"
	}
	return "it sends " + d.Want() + ", not " + d.Got()
}
