package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
)

// ICRC computes and checks the invariant CRC of the packets from one address to another. It is the
// CRC-32 of Ethernet over eight bytes of ones, the IP and UDP headers and the packet, with ones in
// the fields that may change on the path: traffic class, flow label, hop limit, both checksums, and
// byte 4 of the BTH. Unlike all other fields it is sent least significant byte first.
//
// It covers the IPv4 identification, which users of sockets neither set nor see. Over IPv6
// the identification is ignored. The don't-fragment bit is taken to be set.
//
// An ICRC is immutable. It holds the CRC of the headers with lengths and identification of
// zero; their effects are added from tables.
type ICRC struct {
	headers poly // register after the UDP header
	ipv6    bool
}

// Lengths of the headers around a transport packet.
const (
	IPv4HeaderLen = 20
	IPv6HeaderLen = 40
	UDPHeaderLen  = 8

	// MaxUDPPayload is the longest UDP payload of an IPv4 packet, also used for IPv6.
	MaxUDPPayload = 1<<16 - 1 - IPv4HeaderLen - UDPHeaderLen
)

const (
	protocolUDP      = 17
	ipv4DontFragment = 0x4000
)

// Offsets of the fields that differ between packets.
const (
	ipv4TotalLenAt   = 2
	ipv4IDAt         = 4
	ipv4HeadersLen   = IPv4HeaderLen + UDPHeaderLen
	ipv6PayloadLenAt = 4
	ipv6HeadersLen   = IPv6HeaderLen + UDPHeaderLen
	udpLenAt         = 4
)

// Effects of these fields on the register after the UDP header.
var (
	ipv4TotalLen = makeEffect16(ipv4HeadersLen - ipv4TotalLenAt)
	ipv4ID       = makeEffect16(ipv4HeadersLen - ipv4IDAt)
	udpLen       = makeEffect16(UDPHeaderLen - udpLenAt)
	ipv6Lens     = makeEffect16(ipv6HeadersLen-ipv6PayloadLenAt, UDPHeaderLen-udpLenAt)
)

// bthBytes are the effects of the bytes of a BTH on the CRC register at its end. hash/crc32 cannot
// be used: it would need a copy of the BTH, to mask one byte.
var bthBytes = makeBTHBytes()

// makeBTHBytes returns for each byte of a BTH its effect on the CRC register at the end of the BTH.
func makeBTHBytes() (effects [BTHLen]effect) {
	for i := range effects {
		effects[i] = makeEffect(BTHLen - i)
	}
	return effects
}

// NewICRC returns the ICRC of packets from src to dst. Both addresses are of one family; an IPv4
// address mapped into IPv6 is IPv4. Fields that routers change are ones. Lengths and
// identification, which differ between packets, are 0 here; updateHeaders adds them.
func NewICRC(src, dst netip.AddrPort) ICRC {
	var buf [8 + ipv6HeadersLen]byte
	b := append(buf[:0], 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF) // in place of the LRH, which RoCE does not have
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

// Sum returns the ICRC of b, a UDP payload without its last four bytes, with the given IPv4
// identification. b has at least a BTH, and is not modified.
func (c ICRC) Sum(ipID uint16, b []byte) uint32 {
	register := updateBTH(c.updateHeaders(ipID, len(b)+ICRCLen), (*[BTHLen]byte)(b))
	rest := b[BTHLen:]
	if len(rest) >= minHashedLen {
		return crc32.Update(^uint32(register), crc32.IEEETable, rest)
	}
	return ^uint32(updateShort(register, rest))
}

// minHashedLen is the length from which hash/crc32 is faster, because it uses SIMD.
const minHashedLen = 64

// updateShort returns the CRC register after b. For short b it is faster than hash/crc32.
func updateShort(register poly, b []byte) poly {
	// The effects of the last bytes of a BTH are those of the last bytes of any data.
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

// updateHeaders returns the CRC register after the UDP header: it adds the lengths and the
// identification, which are 0 in c.headers.
func (c ICRC) updateHeaders(ipID uint16, udpPayloadLen int) poly {
	length := uint16(UDPHeaderLen + udpPayloadLen)
	if c.ipv6 {
		return c.headers ^ ipv6Lens.of(length)
	}
	return c.headers ^ ipv4TotalLen.of(IPv4HeaderLen+length) ^ ipv4ID.of(ipID) ^ udpLen.of(length)
}

// updateBTH returns the CRC register after a BTH, whose byte 4 (FECN, BECN) counts as ones.
func updateBTH(register poly, bth *[BTHLen]byte) poly {
	register ^= poly(binary.LittleEndian.Uint32(bth[:]))
	return bthBytes[0][byte(register)] ^ bthBytes[1][byte(register>>8)] ^
		bthBytes[2][byte(register>>16)] ^ bthBytes[3][byte(register>>24)] ^
		bthBytes[4][0xFF] ^ bthBytes[5][bth[5]] ^ bthBytes[6][bth[6]] ^ bthBytes[7][bth[7]] ^
		bthBytes[8][bth[8]] ^ bthBytes[9][bth[9]] ^ bthBytes[10][bth[10]] ^ bthBytes[11][bth[11]]
}

// Seal sets the last four bytes of b, a whole UDP payload, to the ICRC for an IPv4 identification.
func (c ICRC) Seal(ipID uint16, b []byte) {
	body := b[:len(b)-ICRCLen]
	binary.LittleEndian.PutUint32(b[len(body):], c.Sum(ipID, body))
}

// Check reports whether b, a whole UDP payload with the given IPv4 identification, has the right
// ICRC, at least a BTH before it, and at most MaxUDPPayload bytes.
func (c ICRC) Check(ipID uint16, b []byte) bool {
	diff, ok := c.difference(ipID, b)
	return ok && diff == 0
}

// difference returns the correct ICRC XOR the ICRC in the last four bytes of b; false if b is too
// short for a BTH and an ICRC, or longer than MaxUDPPayload.
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
// 16 of the 32 bits remain to detect errors: a random ICRC passes once in 65536 times. Single-bit
// errors are detected in packets of up to MaxAnyIPIDLen bytes. Over IPv6 it is the same as Check.
func (c ICRC) CheckAnyIPID(b []byte) (ipID uint16, ok bool) {
	diff, ok := c.difference(0, b)
	switch {
	case !ok:
		return 0, false
	case diff == 0:
		return 0, true
	case c.ipv6:
		return 0, false
	}
	// Shift the difference back to the position of the identification. If the
	// identification explains it, all other bits are zero.
	id := backward.shift(poly(diff), idDistance(len(b)))
	if id>>16 != 0 {
		return 0, false
	}
	return bits.ReverseBytes16(uint16(id)), true // as in IDDelta
}

// MaxAnyIPIDLen is the longest UDP payload in which CheckAnyIPID rejects every
// single-bit error. MaxPacketLen is well below it.
const MaxAnyIPIDLen = 26744

// IDDelta returns the effect of an IPv4 identification: the ICRC for identification 0 XOR
// IDDelta is the ICRC for id. udpPayloadLen includes BTH and ICRC. It is for packets that
// are numbered after Seal, as with UDP segmentation offload.
func IDDelta(id uint16, udpPayloadLen int) uint32 {
	register := bits.ReverseBytes16(id) // its low bits are the first byte
	return uint32(forward.shift(poly(register), idDistance(udpPayloadLen)))
}

// idDistance is the number of bytes that the CRC covers from the IPv4 identification on.
func idDistance(udpPayloadLen int) int {
	return ipv4HeadersLen - ipv4IDAt + udpPayloadLen - ICRCLen
}
