package ethernet

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/link"
)

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpPSH = 0x08
)

// frameTemplate is a frame without its payload, which an impairment pipe gets.
type frameTemplate struct {
	headers headers
	partial bool // the transport checksum is left to the NIC
	// headerBytes is the frame up to the end of the transport header.
	headerBytes []byte
}

// set copies the headers of frame b, whose offsets are h. partial means that the sender left the
// transport checksum to the NIC.
func (t *frameTemplate) set(h *headers, b []byte, partial bool) {
	t.headers, t.partial = *h, partial
	t.headerBytes = append(t.headerBytes[:0], b[:h.dataOffset(b)]...)
}

// dataOffset returns the offset of the application's data: h.payload, but for TCP the end of the
// header and its options, since h.payload is an offset within the TCP header.
func (h *headers) dataOffset(b []byte) int {
	if h.proto == link.ProtocolTCP {
		return h.l4 + int(b[h.l4+12]>>4)*4
	}
	return h.payload
}

// appendFrame appends to b the frame of d, which an impairment pipe has returned: the template's
// headers, with correct lengths and checksums, and d's payload. If t.partial is set, the NIC
// completes the transport checksum.
func (t *frameTemplate) appendFrame(b []byte, d *link.Datagram) []byte {
	start := len(b)
	b = append(b, t.headerBytes...)
	h := t.headers
	if h.proto == link.ProtocolTCP {
		b = t.appendTCP(b, d.Payload)
	} else {
		b = append(b, d.Payload...)
	}
	f := b[start:]
	h.end = len(f)
	h.setIP(f, d)
	if h.proto == link.ProtocolUDP {
		binary.BigEndian.PutUint16(f[h.l4+4:], uint16(h.end-h.l4))
	}
	h.setChecksum(f, t.partial)
	return b
}

// appendTCP appends the data of a segment. payload, which the impairment pipe may have changed,
// begins with the rest of the TCP header. That part must stay valid: bits that the pipe has
// inverted there are inverted in the data instead.
func (t *frameTemplate) appendTCP(b, payload []byte) []byte {
	h := &t.headers
	header := t.headerBytes[h.payload:] // the part of the header that was in the pipe's payload
	sentLen := h.end - h.payload        // of the payload before the pipe
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
	if len(payload) < sentLen && sentLen > len(header) { // truncated: the end of the data, with FIN and PSH, is missing
		flags := &b[start-len(t.headerBytes)+h.l4+13]
		*flags &^= tcpFIN | tcpPSH
	}
	return b
}

// setIP sets the length, the fields of d and the header checksum in the IP header of frame f.
func (h *headers) setIP(f []byte, d *link.Datagram) {
	ip := f[h.l3:]
	if h.v6 {
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(d.TClass)<<20|d.FlowLabel&link.FlowLabelMask)
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
	binary.BigEndian.PutUint16(ip[10:], link.Checksum(ip[:h.l4-h.l3]))
}

// A Pipe that holds a packet for reordering stores only its payload and datagram fields. The rest
// of the frame is stored in a slot. The flow label carries the slot's number above its 20 bits.
const (
	slotShift = 20
	maxSlots  = 1<<(32-slotShift) - 1
)

// templateStore holds the frame templates of packets that a Pipe may hold.
type templateStore struct {
	enabled bool             // some event reorders packets
	all     []*frameTemplate // of slots 1, 2, …
	free    []uint32         // slots
	busy    int              // slots in use
}

// store stores the headers of frame b, whose offsets are h, and returns the number of their slot,
// from 1; 0 if the store is full.
func (s *templateStore) store(h *headers, b []byte, partial bool) uint32 {
	slot := uint32(0)
	if n := len(s.free); n > 0 {
		slot, s.free = s.free[n-1], s.free[:n-1]
	} else if len(s.all) < maxSlots {
		s.all = append(s.all, &frameTemplate{})
		slot = uint32(len(s.all))
	} else {
		return 0
	}
	s.busy++
	s.all[slot-1].set(h, b, partial)
	return slot
}

// release frees a slot.
func (s *templateStore) release(slot uint32) {
	s.free = append(s.free, slot)
	s.busy--
}

// releaseAll frees all slots.
func (s *templateStore) releaseAll() {
	if s.busy == 0 {
		return
	}
	s.busy, s.free = 0, s.free[:0]
	for i := range s.all {
		s.free = append(s.free, uint32(i+1))
	}
}
