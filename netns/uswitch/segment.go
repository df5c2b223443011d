package uswitch

import "encoding/binary"

// TCP flags. FIN, PSH and CWR belong to only one segment of a GSO packet.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpACK = 0x10
	tcpECE = 0x40
	tcpCWR = 0x80

	tcpFlags = 13 // offset in the header
)

// packet is a received frame or GSO packet.
type packet struct {
	bytes []byte
	vnet  vnetHeader
}

// checksumPartial reports whether the transport checksum is not computed yet.
func (p *packet) checksumPartial() bool { return p.vnet.flags&vnetNeedsChecksum != 0 }

// isGSO reports whether p is a GSO packet.
func (p *packet) isGSO() bool { return p.vnet.gsoType&^gsoECN != gsoNone && p.vnet.gsoSize != 0 }

// headerLen returns the length of the headers of a GSO packet according to its
// vnet header, accurate enough to count frames.
func (p *packet) headerLen() int {
	at := int(p.vnet.csumStart)
	if p.vnet.gsoType&^gsoECN == gsoUDP {
		return min(at+8, len(p.bytes))
	}
	if at+12 >= len(p.bytes) {
		return len(p.bytes)
	}
	return min(at+int(p.bytes[at+12]>>4)*4, len(p.bytes))
}

// frames returns the number of frames of p, the length of the longest, and their total length.
func (p *packet) frames() (n, longest, total int) {
	if !p.isGSO() {
		return 1, len(p.bytes), len(p.bytes)
	}
	header, size := p.headerLen(), int(p.vnet.gsoSize)
	payload := len(p.bytes) - header
	n = max(1, (payload+size-1)/size)
	return n, header + min(size, payload), n*header + payload
}

// completeChecksum computes a checksum that the kernel left partial: the field has only the sum of
// the pseudo-header. It leaves GSO packets as they are.
func (p *packet) completeChecksum() {
	at, field := int(p.vnet.csumStart), int(p.vnet.csumStart)+int(p.vnet.csumOffset)
	if !p.checksumPartial() || p.isGSO() || field+2 > len(p.bytes) {
		return
	}
	check := ^fold(sum(p.bytes[at:]))
	if check == 0 {
		check = 0xffff // UDP: 0 means no checksum; both are equal in ones' complement
	}
	binary.BigEndian.PutUint16(p.bytes[field:], check)
	p.vnet.flags &^= vnetNeedsChecksum
}

// completeInnerChecksum computes a partial checksum that is not that of an outermost UDP or TCP
// header, such as one in a tunnel: Frame.ChecksumPartial always means the outermost header.
func (p *packet) completeInnerChecksum() {
	if !p.checksumPartial() {
		return
	}
	l, ok := parse(p.bytes)
	if !ok || int(p.vnet.csumStart) != l.l4 || l.l4+int(p.vnet.csumOffset) != l.checksumAt() {
		p.completeChecksum()
	}
}

// segmenter splits a GSO packet into frames in place, one at a time: it writes the headers of a
// frame over the end of the payload before it, and restores that payload afterwards. Only one frame
// is valid at a time, and nothing may be sent before restore.
type segmenter struct {
	bytes       []byte
	layout      layout
	segmentSize int // payload of each frame but the last
	n           int
	headers     [maxHeader]byte
	covered     [maxHeader]byte
	coveredAt   int // offset where headers cover payload; -1 if none
}

// begin prepares to segment GSO packet p; false if its headers are unknown or it has no payload.
func (c *segmenter) begin(p *packet) bool {
	l, ok := parse(p.bytes)
	if !ok || !p.vnet.matches(&l) || !p.checksumPartial() || len(p.bytes) == l.payload {
		return false
	}
	c.bytes, c.layout, c.segmentSize, c.coveredAt = p.bytes, l, int(p.vnet.gsoSize), -1
	c.n = (len(p.bytes) - l.payload + c.segmentSize - 1) / c.segmentSize
	copy(c.headers[:l.payload], p.bytes)
	return true
}

// frame returns frame k, valid until the next call of frame or restore. It writes the headers over
// the bytes before the payload of the frame, and keeps a copy of these in covered.
func (c *segmenter) frame(k int) []byte {
	c.restore()
	l := &c.layout
	c.coveredAt = k * c.segmentSize
	f := c.bytes[c.coveredAt:min(len(c.bytes), c.coveredAt+l.payload+c.segmentSize)]
	copy(c.covered[:l.payload], f)
	h := f[:l.payload]
	copy(h, c.headers[:l.payload])
	if !l.v6 {
		id := h[l.l3+4:]
		binary.BigEndian.PutUint16(id, binary.BigEndian.Uint16(id)+uint16(k))
	}
	if l.proto == protoTCP {
		seq := h[l.l4+4:]
		binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+uint32(c.coveredAt))
		if k > 0 {
			h[l.l4+tcpFlags] &^= tcpCWR
		}
		if k < c.n-1 {
			h[l.l4+tcpFlags] &^= tcpFIN | tcpPSH
		}
	}
	l.setLength(h, len(f)-l.payload)
	return f
}

// restore restores the bytes that the headers of the last frame cover.
func (c *segmenter) restore() {
	if c.coveredAt >= 0 {
		copy(c.bytes[c.coveredAt:], c.covered[:c.layout.payload])
		c.coveredAt = -1
	}
}
