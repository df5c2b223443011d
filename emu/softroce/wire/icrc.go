package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
)

// ICRC computes and checks the invariant CRC of the packets from one address
// to another. It is a CRC-32 as Ethernet's, over eight bytes of ones, the IP
// and UDP headers and the packet, with ones in place of whatever may change on
// the way: traffic class, flow label, hop limit, both checksums, and byte 4 of
// the BTH. It goes onto the wire least significant byte first, unlike all
// other fields.
//
// The IPv4 identification is covered, though a user of sockets neither sets
// nor sees it: each method says how it comes by it. It means nothing over IPv6.
// The don't-fragment bit is taken as set.
//
// An ICRC is immutable. The headers it has to imagine cost no hashing per
// packet: it holds their CRC for lengths and identification of zero, and what
// these contribute is looked up, CRCs being linear.
type ICRC struct {
	headers poly // register after the UDP header
	ipv6    bool
}

// Offsets into the masked headers of what differs from packet to packet.
const (
	ipv4TotalLenAt   = 2
	ipv4IDAt         = 4
	ipv4HeadersLen   = IPv4HeaderLen + UDPHeaderLen
	ipv6PayloadLenAt = 4
	ipv6HeadersLen   = IPv6HeaderLen + UDPHeaderLen
	udpLenAt         = 4
)

// Their effects on the register after the UDP header.
var (
	ipv4TotalLen = makeEffect16(ipv4HeadersLen - ipv4TotalLenAt)
	ipv4ID       = makeEffect16(ipv4HeadersLen - ipv4IDAt)
	udpLen       = makeEffect16(UDPHeaderLen - udpLenAt)
	ipv6Lens     = makeEffect16(ipv6HeadersLen-ipv6PayloadLenAt, UDPHeaderLen-udpLenAt)
)

// bthBytes holds the effects of the bytes of a BTH on the register after it.
// The BTH cannot go through hash/crc32 with the rest, because one of its bytes
// must be masked and b is not ours to change.
var bthBytes = makeBTHBytes()

func makeBTHBytes() (effects [BTHLen]effect) {
	for i := range effects {
		effects[i] = makeEffect(BTHLen - i)
	}
	return effects
}

// NewICRC returns the ICRC of packets from src to dst. Both addresses are of
// one family; an IPv4 address mapped into IPv6 is IPv4. dst's port is Port in
// any packet that a peer takes for RoCEv2.
func NewICRC(src, dst netip.AddrPort) ICRC {
	var buf [8 + ipv6HeadersLen]byte
	b := append(buf[:0], 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF) // no local route header
	from, to := src.Addr().Unmap(), dst.Addr().Unmap()
	ipv6 := !from.Is4() || !to.Is4()
	if ipv6 {
		b = append(b, 0x6F, 0xFF, 0xFF, 0xFF, 0, 0, protocolUDP, 0xFF)
		from16, to16 := from.As16(), to.As16()
		b = append(b, from16[:]...)
		b = append(b, to16[:]...)
	} else {
		b = append(b, 0x45, 0xFF, 0, 0, 0, 0, ipv4DontFragment>>8, 0, 0xFF, protocolUDP, 0xFF, 0xFF)
		from4, to4 := from.As4(), to.As4()
		b = append(b, from4[:]...)
		b = append(b, to4[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = append(b, 0, 0, 0xFF, 0xFF)
	register := ^poly(0)
	for _, v := range b { // hash/crc32 would move the buffer to the heap
		register = poly(crc32.IEEETable[byte(register)^v]) ^ register>>8
	}
	return ICRC{headers: register, ipv6: ipv6}
}

// Sum returns the ICRC of b, a UDP payload without its last four bytes, sent
// with the given IPv4 identification. b holds at least a BTH, byte 4 of which
// counts as ones; it is not modified.
func (c ICRC) Sum(ipID uint16, b []byte) uint32 {
	register := updateBTH(c.updateHeaders(ipID, len(b)+ICRCLen), (*[BTHLen]byte)(b))
	if rest := b[BTHLen:]; len(rest) >= minHashedLen {
		return crc32.Update(^uint32(register), crc32.IEEETable, rest)
	}
	return ^uint32(updateShort(register, b[BTHLen:]))
}

// shortest is the least that hash/crc32 is faster for: from there on it uses
// the processor's instructions, below it mostly goes byte by byte.
const minHashedLen = 64

// afterShort takes the register over b, eight bytes at a time.
func updateShort(register poly, b []byte) poly {
	// The effects of a BTH's last bytes are those of the last bytes of anything.
	e := (*[8]effect)(bthBytes[BTHLen-8:])
	for ; len(b) >= 8; b = b[8:] {
		register ^= poly(binary.LittleEndian.Uint32(b))
		register = e[0][byte(register)] ^ e[1][byte(register>>8)] ^ e[2][byte(register>>16)] ^ e[3][byte(register>>24)] ^
			e[4][b[4]] ^ e[5][b[5]] ^ e[6][b[6]] ^ e[7][b[7]]
	}
	for _, v := range b {
		register = e[7][byte(register)^v] ^ register>>8
	}
	return register
}

// afterHeaders returns the register after the UDP header.
func (c ICRC) updateHeaders(ipID uint16, udpPayloadLen int) poly {
	length := uint16(UDPHeaderLen + udpPayloadLen)
	if c.ipv6 {
		return c.headers ^ ipv6Lens.of(length)
	}
	return c.headers ^ ipv4TotalLen.of(IPv4HeaderLen+length) ^ ipv4ID.of(ipID) ^ udpLen.of(length)
}

// afterBTH takes the register over a BTH, byte 4 as ones.
func updateBTH(register poly, bth *[BTHLen]byte) poly {
	register ^= poly(binary.LittleEndian.Uint32(bth[:]))
	return bthBytes[0][byte(register)] ^ bthBytes[1][byte(register>>8)] ^
		bthBytes[2][byte(register>>16)] ^ bthBytes[3][byte(register>>24)] ^
		bthBytes[4][0xFF] ^ bthBytes[5][bth[5]] ^ bthBytes[6][bth[6]] ^ bthBytes[7][bth[7]] ^
		bthBytes[8][bth[8]] ^ bthBytes[9][bth[9]] ^ bthBytes[10][bth[10]] ^ bthBytes[11][bth[11]]
}

// Seal fills the last four bytes of b, a whole UDP payload, with the ICRC that
// is right if the packet leaves with the given IPv4 identification.
func (c ICRC) Seal(ipID uint16, b []byte) {
	body := b[:len(b)-ICRCLen]
	binary.LittleEndian.PutUint32(b[len(body):], c.Sum(ipID, body))
}

// Check reports whether b, a whole UDP payload that came with the given IPv4
// identification, is long enough to be a packet and ends in the right ICRC.
func (c ICRC) Check(ipID uint16, b []byte) bool {
	diff, ok := c.difference(ipID, b)
	return ok && diff == 0
}

// difference returns the right ICRC XOR the one that b ends in, or false if b
// is no packet at all.
func (c ICRC) difference(ipID uint16, b []byte) (uint32, bool) {
	if len(b) < BTHLen+ICRCLen || len(b) > MaxUDPPayload {
		return 0, false
	}
	body := b[:len(b)-ICRCLen]
	return c.Sum(ipID, body) ^ binary.LittleEndian.Uint32(b[len(body):]), true
}

// CheckAnyIPID is Check for a receiver that cannot see the IPv4 identification:
// it reports whether the ICRC is right for some identification, and for which.
//
// That leaves 16 of the 32 bits to catch errors with: a random ICRC passes once
// in 65536 times. No single flipped bit passes in a packet of up to
// MaxAnyIPIDLen bytes. Over IPv6, where nothing is hidden, it is Check.
func (c ICRC) CheckAnyIPID(b []byte) (ipID uint16, ok bool) {
	diff, ok := c.difference(0, b)
	if !ok || diff == 0 {
		return 0, ok
	}
	if c.ipv6 {
		return 0, false
	}
	// Take the register back to where the two bytes of the identification are
	// about to enter: if they explain the difference, nothing else is left in it.
	id := backward.shift(poly(diff), idDistance(len(b)))
	if id>>16 != 0 {
		return 0, false
	}
	return bits.ReverseBytes16(uint16(id)), true
}

// MaxAnyIPIDLen is the longest UDP payload in which CheckAnyIPID rejects every
// single-bit error. MaxPacketLen is well below it.
const MaxAnyIPIDLen = 26744

// IDDelta returns the difference that an IPv4 identification makes: the ICRC of
// a packet sealed for identification 0, XOR IDDelta, is its ICRC for id.
// udpPayloadLen counts the BTH to the ICRC, both included. It serves where the
// network numbers packets after they were sealed, as UDP segmentation offload
// does.
func IDDelta(id uint16, udpPayloadLen int) uint32 {
	return uint32(forward.shift(poly(bits.ReverseBytes16(id)), idDistance(udpPayloadLen)))
}

// idDistance is the number of bytes that the CRC covers from the first of the
// IPv4 identification on.
func idDistance(udpPayloadLen int) int {
	return ipv4HeadersLen - ipv4IDAt + udpPayloadLen - ICRCLen
}
