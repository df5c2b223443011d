package udpwire

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// datagram is what a socket can be told to send, and tells of what came.
type datagram struct {
	src, dst  netip.AddrPort
	tclass    uint8
	hopLimit  uint8
	flowLabel uint32
	summed    bool // it has a UDP checksum
	payload   []byte
}

// packet is the IP packet that the datagram goes in, by default. What comes, comes with
// headers that are made up where the datagram does not tell.
func (d *datagram) packet() []byte {
	ip := packet.IP{Src: d.src.Addr().WithZone(""), Dst: d.dst.Addr().WithZone(""), TClass: &d.tclass, HopLimit: &d.hopLimit}
	if ip.Is6() {
		ip.FlowLabel = &d.flowLabel
	}
	udp := packet.UDP{SrcPort: new(d.src.Port()), DstPort: new(d.dst.Port())}
	if !d.summed {
		udp.Checksum = new(uint16(0))
	}
	return ip.Append(nil, udp.Append(nil, ip, d.payload))
}

// cannot says why a socket does not send a packet.
func cannot(format string, args ...any) error {
	return fmt.Errorf("an ordinary UDP socket: %w: %s", conformance.ErrCannot, fmt.Sprintf(format, args...))
}

// datagram makes what a socket is told of an IP packet that is to be sent. A packet that
// no socket of ours sends exactly as it is is refused.
func (c *Config) datagram(asked []byte) (*datagram, error) {
	ip, payload, padding, err := packet.ParseIP(asked)
	if err != nil {
		return nil, cannot("%v", err)
	}
	if len(padding) > 0 {
		return nil, cannot("%d bytes behind the packet, in its frame", len(padding))
	}
	if p := *ip.Protocol; p != packet.ProtocolUDP {
		return nil, cannot("IP protocol %d", p)
	}
	udp, data, behind, err := packet.ParseUDP(payload)
	if err != nil {
		return nil, cannot("%v", err)
	}
	if len(behind) > 0 {
		return nil, cannot("%d bytes behind the datagram, in its packet", len(behind))
	}
	d := &datagram{
		src: netip.AddrPortFrom(ip.Src, *udp.SrcPort), dst: netip.AddrPortFrom(ip.Dst, *udp.DstPort),
		tclass: *ip.TClass, hopLimit: *ip.HopLimit, summed: *udp.Checksum != 0, payload: data,
	}
	if err := c.reachable(d); err != nil {
		return nil, err
	}
	made := d.packet()
	if !bytes.Equal(made, asked) {
		return nil, cannot("%s", difference(made, ip, udp))
	}
	return d, nil
}

// reachable refuses what sockets here cannot be at, or do not lead to the device.
func (c *Config) reachable(d *datagram) error {
	to := d.dst.Addr()
	switch {
	case !slices.Contains(c.Addrs, d.src.Addr()):
		return cannot("from %v, and this host has %v", d.src.Addr(), c.Addrs)
	case !to.IsMulticast() && !slices.Contains(c.Device, to):
		return cannot("to %v, which is not the device's: that has %v", to, c.Device)
	case d.src.Port() == 0 || d.dst.Port() == 0:
		return cannot("UDP port 0")
	case d.hopLimit == 0:
		return cannot("a hop limit of 0")
	}
	return nil
}

// difference tells in what a packet is unlike the one that a socket sends.
func difference(made []byte, ip packet.IP, udp packet.UDP) string {
	can, payload, _, _ := packet.ParseIP(made)
	sends, _, _, _ := packet.ParseUDP(payload)
	var d packet.Differences
	can.Checksum = nil // it follows from the rest, unless it is all
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
