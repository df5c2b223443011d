package udplink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// Layout of the ring. A slot has room for the kernel's header and a packet with 4 KiB of data; a
// block, which the kernel allocates as a whole, for 15 slots.
const (
	ringSlotBytes  = 4352
	ringBlockBytes = 1 << 16
	slotsPerBlock  = ringBlockBytes / ringSlotBytes
	ringBlocks     = 35
	ringSlots      = ringBlocks * slotsPerBlock
	// packetHeaderBytes is at least what precedes the IP packet in a slot.
	packetHeaderBytes = 96
	// maxRingUDP is the longest UDP datagram, its header included, that a slot holds.
	maxRingUDP = ringSlotBytes - packetHeaderBytes - link.IPv6HeaderLen
	// indexPayloadBytes are the bytes of payload in an index entry.
	indexPayloadBytes = 16
)

const ethernetHeaderLen = 14

// ring is a packet socket (AF_PACKET) that sends frames, and receives into memory that it shares with
// the kernel (PACKET_RX_RING), so that neither a poll nor a receipt is a system call.
//
// The ring holds an entry for each datagram that arrives at the link's interface for its address and
// port, in the order of arrival. Datagrams that isWhole describes are in the ring themselves. Of others,
// which the UDP socket receives, the entry has only the start: it says when to read the socket.
// The kernel combines only datagrams with a checksum, so that super-packets are never in the ring.
type ring struct {
	fd       int // -1 without a ring
	memory   []byte
	v6       bool
	next     int    // slot to read next
	released int    // slots before it are the kernel's
	taken    uint64 // datagrams that were read from the ring
	waits    int    // reads of the socket that found nothing, though an index entry is next
	socket   socketPolls
}

// entry is a slot that the kernel has filled.
type entry struct {
	ip      []byte // from the IP header on
	headers int    // length of the IP and UDP headers
	whole   bool   // the datagram itself is here, and not in the socket
}

func (e *entry) udp() []byte     { return e.ip[e.headers-link.UDPHeaderLen:] }
func (e *entry) payload() []byte { return e.ip[e.headers:] }

// isWhole reports whether a datagram with this UDP header is received by the ring instead of the
// socket: it has no checksum, and fits into a slot. The filters of both sockets decide likewise.
func isWhole(udp []byte) bool {
	return binary.BigEndian.Uint16(udp[6:]) == 0 && binary.BigEndian.Uint16(udp[4:]) <= maxRingUDP
}

// errNoRing is the reason why a link has no ring.
var errNoRing = errors.New("it needs a unicast address on an interface of a veth pair, GRO, and DropFragmentable")

// open opens the ring of a link that receives at local on an interface. From then on the UDP socket does
// not receive the datagrams that are in the ring.
func (g *ring) open(local netip.AddrPort, intf iface, udpFD int) (err error) {
	g.v6 = local.Addr().Is6()
	if info, err := unix.IoctlGetEthtoolDrvinfo(udpFD, intf.name); err != nil || unix.ByteSliceToString(info.Driver[:]) != "veth" {
		return errNoRing
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("packet socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			g.unmap()
		}
	}()
	for _, s := range []sockopt{
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2, "PACKET_VERSION"},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING"}, // since Linux 4.20
	} {
		if err := unix.SetsockoptInt(fd, s.level, s.opt, s.value); err != nil {
			return fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	size := unix.TpacketReq{Block_size: ringBlockBytes, Block_nr: ringBlocks, Frame_size: ringSlotBytes, Frame_nr: ringSlots}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &size); err != nil {
		return fmt.Errorf("set PACKET_RX_RING: %w", err)
	}
	if g.memory, err = unix.Mmap(fd, 0, ringBlocks*ringBlockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap the packet ring", err)
	}
	if err := attachFilter(fd, ringFilter(local)); err != nil {
		return err
	}
	if err := attachFilter(udpFD, socketFilter(g.v6, intf.index)); err != nil {
		return err
	}
	// The kernel passes packets to ETH_P_ALL before all other receivers: the entry is in the ring
	// before the datagram is in the UDP socket.
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: intf.index}); err != nil {
		return os.NewSyscallError("bind the packet socket", err)
	}
	g.fd = fd
	return nil
}

func (g *ring) unmap() {
	if g.memory != nil {
		unix.Munmap(g.memory)
		g.memory = nil
	}
}

func (g *ring) close() {
	if g.fd >= 0 {
		unix.Close(g.fd)
		g.unmap()
	}
}

// slot returns the header and the memory of a slot.
func (g *ring) slot(i int) (*unix.Tpacket2Hdr, []byte) {
	b := g.memory[i/slotsPerBlock*ringBlockBytes+i%slotsPerBlock*ringSlotBytes:][:ringSlotBytes]
	return (*unix.Tpacket2Hdr)(unsafe.Pointer(&b[0])), b
}

// entryAt returns the entry in slot i; false if the kernel has not filled that slot.
func (g *ring) entryAt(i int) (e entry, ok bool) {
	h, b := g.slot(i)
	if atomic.LoadUint32(&h.Status)&unix.TP_STATUS_USER == 0 {
		return entry{}, false
	}
	// The kernel writes only packets with complete headers, since the filter reads them.
	e.headers = headerLen(g.v6)
	e.ip = b[h.Net:min(int(h.Mac)+int(h.Snaplen), len(b))]
	e.whole = isWhole(e.udp())
	return e, true
}

// advance makes the next entry the current one.
func (g *ring) advance() {
	g.next = (g.next + 1) % ringSlots
	g.waits = 0
}

// release returns the slots of all entries that were read to the kernel.
func (g *ring) release() {
	for g.released != g.next {
		h, _ := g.slot(g.released)
		atomic.StoreUint32(&h.Status, unix.TP_STATUS_KERNEL)
		g.released = (g.released + 1) % ringSlots
	}
}

// describes reports whether the entry is that of a message which the socket has received: it has the
// same length and starts with the same bytes.
func (e *entry) describes(message []byte) bool {
	if int(binary.BigEndian.Uint16(e.udp()[4:]))-link.UDPHeaderLen != len(message) {
		return false
	}
	n := min(len(message), len(e.payload()), indexPayloadBytes)
	return bytes.Equal(message[:n], e.payload()[:n])
}

// hasLater reports whether an entry after the current one describes a message of the socket.
func (g *ring) hasLater(message []byte) bool {
	for i := 1; i < ringSlots; i++ {
		e, ok := g.entryAt((g.next + i) % ringSlots)
		if !ok {
			return false
		}
		if !e.whole && e.describes(message) {
			return true
		}
	}
	return false
}

// decode sets d to the datagram of a whole entry. It reports false if the lengths in its headers
// contradict each other, or the IPv4 checksum is wrong: then the datagram is dropped, as the kernel
// does.
func (e *entry) decode(d *link.Datagram) bool {
	udp := e.udp()
	length := int(binary.BigEndian.Uint16(udp[4:]))
	total := e.headers - link.UDPHeaderLen + length
	if length < link.UDPHeaderLen || total > len(e.ip) {
		return false
	}
	if e.headers == link.IPv4HeaderLen+link.UDPHeaderLen {
		if int(binary.BigEndian.Uint16(e.ip[2:])) != total || link.Checksum(e.ip[:link.IPv4HeaderLen]) != 0 {
			return false
		}
	} else if int(binary.BigEndian.Uint16(e.ip[4:])) != length {
		return false
	}
	link.ReadIP(e.ip, d)
	d.Src = netip.AddrPortFrom(d.Src.Addr(), binary.BigEndian.Uint16(udp))
	d.Dst = netip.AddrPortFrom(d.Dst.Addr(), binary.BigEndian.Uint16(udp[2:]))
	d.Variants, d.IPID = link.NoChecksum, link.IPIDUnknown // as of the socket's datagrams, whose identification is not known
	d.Payload = e.ip[e.headers:total:total]
	return true
}

// drops returns how many whole datagrams were lost because the ring was full. The kernel counts
// them, and those that the ring has received, among the drops of the UDP socket.
func (g *ring) drops(socketDrops uint64) uint64 {
	if g.fd < 0 {
		return socketDrops
	}
	received := g.taken
	for i := range ringSlots {
		e, ok := g.entryAt((g.next + i) % ringSlots)
		if !ok {
			break
		}
		if e.whole {
			received++
		}
	}
	return max(received, socketDrops) - received
}
