package uswitch

import "encoding/binary"

// Flags of TCP that belong to one segment of a super-packet only.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// packet is what a port received: a frame, or a super-packet that stands for
// several.
type packet struct {
	bytes []byte
	vnet  vnetHeader
}

// partial reports whether the transport's checksum is still to be computed.
func (p *packet) partial() bool { return p.vnet.flags&vnetNeedsChecksum != 0 }

// super reports whether p stands for several frames.
func (p *packet) super() bool { return p.vnet.gsoType&^gsoECN != gsoNone && p.vnet.gsoSize != 0 }

// headerLen is the length of a super-packet's headers, as far as its vnet header
// knows: enough to count frames by.
func (p *packet) headerLen() int {
	at := int(p.vnet.checksumAt)
	if p.vnet.gsoType&^gsoECN == gsoUDP {
		return min(at+8, len(p.bytes))
	}
	if at+12 >= len(p.bytes) {
		return len(p.bytes)
	}
	return min(at+int(p.bytes[at+12]>>4)*4, len(p.bytes))
}

// frames returns how many frames p stands for, the length of the longest, and of
// all together.
func (p *packet) frames() (n, longest, total int) {
	if !p.super() {
		return 1, len(p.bytes), len(p.bytes)
	}
	header, size := p.headerLen(), int(p.vnet.gsoSize)
	payload := len(p.bytes) - header
	n = max(1, (payload+size-1)/size)
	return n, header + min(size, payload), n*header + payload
}

// complete computes the checksum that the kernel left out.
func (p *packet) complete() {
	at, field := int(p.vnet.checksumAt), int(p.vnet.checksumAt)+int(p.vnet.checksumOff)
	if !p.partial() || p.super() || field+2 > len(p.bytes) {
		return
	}
	check := ^fold(sum(p.bytes[at:]))
	if check == 0 {
		check = 0xffff // in UDP 0 would mean that there is none; elsewhere they are the same
	}
	binary.BigEndian.PutUint16(p.bytes[field:], check)
	p.vnet.flags &^= vnetNeedsChecksum
}

// settle makes Frame.Partial true of a frame only where it means the outermost
// transport header; a checksum that is missing deeper inside, in a tunnel say, is
// computed here.
func (p *packet) settle() {
	if !p.partial() {
		return
	}
	l, ok := parse(p.bytes)
	if !ok || int(p.vnet.checksumAt) != l.l4 || l.l4+int(p.vnet.checksumOff) != l.checksumAt() {
		p.complete()
	}
}

// cutter shows the frames of a super-packet one after the other, each in one
// piece, without moving the payload: the headers of a frame are written over the
// end of the payload before it, and that is put back afterwards. So no two frames
// can be looked at, nor any byte be sent, at the same time.
type cutter struct {
	bytes   []byte
	layout  layout
	size    int // payload of every frame but the last
	n       int
	headers [maxHeader]byte
	covered [maxHeader]byte
	at      int // where headers now cover payload; -1 if nowhere
}

// begin prepares to cut p; false if p is no super-packet that it knows.
func (c *cutter) begin(p *packet) bool {
	l, ok := parse(p.bytes)
	if !ok || !p.vnet.matches(&l) || !p.partial() || len(p.bytes) == l.payload {
		return false
	}
	c.bytes, c.layout, c.size, c.at = p.bytes, l, int(p.vnet.gsoSize), -1
	c.n = (len(p.bytes) - l.payload + c.size - 1) / c.size
	copy(c.headers[:l.payload], p.bytes)
	return true
}

// frame returns frame k, valid until the next call of frame or end.
func (c *cutter) frame(k int) []byte {
	c.end()
	l := &c.layout
	c.at = k * c.size
	f := c.bytes[c.at:min(len(c.bytes), c.at+l.payload+c.size)]
	copy(c.covered[:l.payload], f)
	h := f[:l.payload]
	copy(h, c.headers[:l.payload])
	if !l.v6 {
		id := h[l.l3+4:]
		binary.BigEndian.PutUint16(id, binary.BigEndian.Uint16(id)+uint16(k))
	}
	if l.proto == protoTCP {
		seq := h[l.l4+4:]
		binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+uint32(c.at))
		if k > 0 {
			h[l.l4+13] &^= tcpCWR
		}
		if k < c.n-1 {
			h[l.l4+13] &^= tcpFIN | tcpPSH
		}
	}
	l.setLength(h, len(f)-l.payload)
	return f
}

// end puts back what the last frame covered.
func (c *cutter) end() {
	if c.at >= 0 {
		copy(c.bytes[c.at:], c.covered[:c.layout.payload])
		c.at = -1
	}
}
