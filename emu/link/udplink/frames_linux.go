package udplink

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// frameSender makes the Ethernet frames of single datagrams, which leave through the packet socket of the
// ring: the kernel has no headers to make and no route to look up. The datagrams have UDP checksum 0,
// as those of RoCE NICs, so that a ring of the peer receives them.
type frameSender struct {
	intf     int
	local    netip.Addr
	srcPort  uint16
	hopLimit uint8 // for datagrams without one
	maxSize  int   // longest payload
	mac      [6]byte
	routes   *netlink.Handle // nil without a ring
	last     *neighbour      // that of the last datagram
	known    map[netip.Addr]*neighbour
	buf      []byte // the frame
}

// neighbour is a host to which a link sends frames.
type neighbour struct {
	addr    netip.Addr
	mac     [6]byte   // of the host, or of the router to it
	until   mono.Time // when to look up mac again; 0 if it is not known
	singles int       // datagrams that were sent through the socket since the last look-up
	// unanswered counts frames since the last datagram from the neighbour.
	unanswered int
	headers    []byte        // those of the last frame
	sent       link.Datagram // its datagram, without payload
}

const (
	// macValid is the time after which the kernel is asked for a MAC address again. One datagram is then
	// sent through the socket, so that the kernel checks whether the neighbour still answers to it.
	macValid = time.Second
	// maxUnanswered limits the frames that fill a neighbour's ring, which is smaller than the buffer of a
	// socket. Further datagrams go through the socket.
	maxUnanswered = 32
	// maxFrames is the number of datagrams up to which Send sends frames. More of them take less time in
	// one call for the socket. Three are a message of 8 KiB with a header.
	maxFrames = 3
	// maxNeighbours limits the number of neighbours whose addresses a link keeps.
	maxNeighbours = 1024
)

// open prepares to send frames from an interface. Neighbours are looked up in the network namespace of the
// caller's thread.
func (f *frameSender) open(info Info, ifi int) error {
	intf, err := net.InterfaceByIndex(ifi)
	if err != nil {
		return err
	}
	if f.routes, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	f.intf, f.local, f.srcPort, f.hopLimit = ifi, info.Local.Addr(), info.Source.Port(), info.HopLimit
	f.maxSize = info.MTU - headerLen(f.local.Is6())
	copy(f.mac[:], intf.HardwareAddr)
	f.known = make(map[netip.Addr]*neighbour)
	f.buf = make([]byte, 0, ethernetHeaderLen+info.MTU)
	return nil
}

func (f *frameSender) close() {
	if f.routes != nil {
		f.routes.Close()
	}
}

// encode makes the frame of a datagram in f.buf. It reports false if the datagram must be sent through
// the socket: the MAC address of the destination is not known, or the neighbour may not have read
// earlier frames.
func (f *frameSender) encode(now mono.Time, d *link.Datagram) bool {
	if f.routes == nil {
		return false
	}
	n := f.last
	if to := d.Dst.Addr(); n == nil || n.addr != to {
		if n = f.neighbour(to); n == nil {
			return false
		}
		f.last = n
	}
	if n.until <= now {
		f.lookUp(now, n)
		return false
	}
	if n.unanswered >= maxUnanswered || len(d.Payload) > f.maxSize {
		return false
	}
	n.unanswered++
	f.append(d, n)
	return true
}

// append makes the frame of a datagram to a neighbour in f.buf. Most frames have the headers of the last
// one, except for the lengths and the IPv4 checksum.
func (f *frameSender) append(d *link.Datagram, n *neighbour) {
	if s := &n.sent; s.Dst != d.Dst || s.TClass != d.TClass || s.HopLimit != d.HopLimit || s.FlowLabel != d.FlowLabel || n.headers == nil {
		f.makeHeaders(d, n)
	}
	f.buf = append(append(f.buf[:0], n.headers...), d.Payload...)
	ip := f.buf[ethernetHeaderLen:]
	length := uint16(link.UDPHeaderLen + len(d.Payload))
	if f.local.Is6() {
		binary.BigEndian.PutUint16(ip[4:], length)
		binary.BigEndian.PutUint16(ip[link.IPv6HeaderLen+4:], length)
		return
	}
	binary.BigEndian.PutUint16(ip[2:], link.IPv4HeaderLen+length)
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], link.Checksum(ip[:link.IPv4HeaderLen]))
	binary.BigEndian.PutUint16(ip[link.IPv4HeaderLen+4:], length)
}

// makeHeaders makes the headers of datagrams that have the destination and IP fields of d.
func (f *frameSender) makeHeaders(d *link.Datagram, n *neighbour) {
	n.sent = *d
	n.sent.Payload = nil
	packet := n.sent
	packet.Src = netip.AddrPortFrom(f.local, f.srcPort)
	packet.Variants = link.NoChecksum
	packet.IPID = 0 // over IPv4, as the kernel sends from a socket that is not connected
	if packet.HopLimit == 0 {
		packet.HopLimit = f.hopLimit
	}
	etherType := uint16(link.EtherTypeIPv4)
	if f.local.Is6() {
		etherType = link.EtherTypeIPv6
	}
	b := append(append(n.headers[:0], n.mac[:]...), f.mac[:]...)
	n.headers = link.AppendUDP(binary.BigEndian.AppendUint16(b, etherType), &packet)
}

// neighbour returns the neighbour with an address, and adds it if it is new; nil if datagrams to the
// address cannot be frames, or there are too many neighbours.
func (f *frameSender) neighbour(to netip.Addr) *neighbour {
	n := f.known[to]
	if n == nil && len(f.known) < maxNeighbours && to.IsValid() && to.Is6() == f.local.Is6() && !to.Is4In6() && !to.IsMulticast() && to != limitedBroadcast {
		n = &neighbour{addr: to}
		f.known[to] = n
	}
	return n
}

// lookUp sets the MAC address of a neighbour, as the kernel knows it. It asks the kernel again only after
// connectAfter more datagrams. The route to the neighbour must use the link's interface and address.
func (f *frameSender) lookUp(now mono.Time, n *neighbour) {
	if n.singles++; n.until == 0 && n.singles < connectAfter {
		return
	}
	n.singles, n.until = 0, 0
	next := n.addr
	if !next.IsLinkLocalUnicast() {
		routes, err := f.routes.RouteGet(n.addr.AsSlice())
		if err != nil || len(routes) != 1 || routes[0].LinkIndex != f.intf {
			return
		}
		if gateway, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			next = gateway.Unmap()
		}
	}
	family := unix.AF_INET
	if next.Is6() {
		family = unix.AF_INET6
	}
	entries, err := f.routes.NeighList(f.intf, family)
	if err != nil {
		return
	}
	const valid = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE | netlink.NUD_PROBE | netlink.NUD_STALE | netlink.NUD_DELAY
	for _, e := range entries {
		if ip, _ := netip.AddrFromSlice(e.IP); ip.Unmap() == next && e.State&valid != 0 && len(e.HardwareAddr) == len(n.mac) {
			copy(n.mac[:], e.HardwareAddr)
			n.until, n.headers = now.Add(macValid), nil
		}
	}
}

// received notes that a datagram has arrived from an address: it has probably read earlier frames.
func (f *frameSender) received(from netip.Addr) {
	n := f.last
	if n == nil || n.addr != from {
		n = f.known[from]
	}
	if n != nil {
		n.unanswered = 0
	}
}

// failed notes that the kernel refused the last frame: datagrams to its destination go through the socket
// until the next look-up.
func (f *frameSender) failed() { f.last.until = 0 }
