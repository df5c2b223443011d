package ethernet

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/link"
)

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
)

// envelope is what a frame has besides the payload that a Pipe sees.
type envelope struct {
	headers headers
	partial bool
	// front is the frame up to the end of the transport header.
	front []byte
}

// wrap copies what is needed of the frame b to send its payload later.
func (e *envelope) wrap(h *headers, b []byte, partial bool) {
	e.headers, e.partial = *h, partial
	e.front = append(e.front[:0], b[:h.frontEnd(b)]...)
}

// frontEnd is where the data begins: behind all of a TCP header.
func (h *headers) frontEnd(b []byte) int {
	if h.proto == protoTCP {
		return h.l4 + int(b[h.l4+12]>>4)*4
	}
	return h.payload
}

// appendFrame appends to b the frame that an envelope makes of what a Pipe gave
// out, with lengths and checksums that fit.
func (e *envelope) appendFrame(b []byte, d *link.Datagram) []byte {
	start := len(b)
	b = append(b, e.front...)
	h := e.headers
	if h.proto == protoTCP {
		b = e.appendTCP(b, d.Payload)
	} else {
		b = append(b, d.Payload...)
	}
	f := b[start:]
	h.end = len(f)
	h.setIP(f, d)
	if h.proto == protoUDP {
		binary.BigEndian.PutUint16(f[h.l4+4:], uint16(h.end-h.l4))
	}
	h.seal(f, e.partial)
	return b
}

// appendTCP appends the data of a segment. The Pipe saw the end of the header as
// the beginning of its payload; what it did there happens to the data instead.
func (e *envelope) appendTCP(b, payload []byte) []byte {
	h := &e.headers
	header := e.front[h.payload:] // what the Pipe saw of it
	before := h.end - h.payload
	start := len(b)
	if len(payload) > len(header) {
		b = append(b, payload[len(header):]...)
	}
	data := b[start:]
	for i := range min(len(header), len(payload)) {
		if flipped := payload[i] ^ header[i]; flipped != 0 && len(data) > 0 {
			data[i%len(data)] ^= flipped
		}
	}
	if len(payload) < before && before > len(header) {
		flags := &b[start-len(e.front)+h.l4+13]
		*flags &^= tcpFIN | tcpPSH
	}
	return b
}

// setIP writes the length and what d says into the IP header.
func (h *headers) setIP(f []byte, d *link.Datagram) {
	ip := f[h.l3:]
	if h.v6 {
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(d.TClass)<<20|d.FlowLabel&flowLabelMask)
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-link.IPv6HeaderLen))
		ip[7] = d.HopLimit
		return
	}
	ip[1], ip[8] = d.TClass, d.HopLimit
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	if d.IPID < link.IPIDUnknown {
		binary.BigEndian.PutUint16(ip[4:], uint16(d.IPID))
	}
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip[:h.l4-h.l3])))
}
