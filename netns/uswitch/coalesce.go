package uswitch

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

const (
	// maxIovecs is the number of payload buffers of a message.
	maxIovecs = 17
	// maxSegments is the number of datagrams in a GSO packet: the smallest
	// limit of kernels with UDP GSO.
	maxSegments = 64
	maxIP       = 1<<16 - 1
)

// message is one sendmsg: a frame, or coalesced frames of a flow as a GSO packet.
type message struct {
	vnet      [vnetLen]byte
	iovs      [maxIovecs][]byte // the packet after headers
	headers   [maxHeader]byte
	layout    layout
	headerLen int // bytes in headers; 0: iovs[0] is the whole packet
	iovCount  int

	frames      int    // number of segments
	segmentSize int    // payload of each segment but the last
	payload     int    // total
	canAppend   bool   // coalesce may append a frame
	id          uint16 // IPv4 identification of the next frame
	seq         uint32 // TCP sequence number of the next frame
}

// setPacket sets m to send a packet as it was received.
func (m *message) setPacket(p *packet) {
	n, _, _ := p.frames()
	m.headerLen, m.iovCount, m.frames, m.canAppend = 0, 1, n, false
	m.iovs[0] = p.bytes
	p.vnet.put(m.vnet[:])
}

// setFrame sets m to send a single frame. partial says that its transport checksum is not computed
// yet: later frames can then be coalesced with it, and its headers are copied. Other bytes of b
// must not change until m is sent.
func (m *message) setFrame(b []byte, partial bool) {
	*(*[vnetLen]byte)(m.vnet[:]) = [vnetLen]byte{}
	m.headerLen, m.iovCount, m.frames, m.canAppend = 0, 1, 1, false
	m.iovs[0] = b
	if !partial {
		return
	}
	l, ok := parse(b)
	if !ok {
		return // send it unchanged
	}
	end := min(len(b), l.l3+l.ipBytes(b))
	m.layout, m.headerLen = l, l.payload
	m.payload = max(0, end-l.payload)
	m.segmentSize = m.payload
	copy(m.headers[:l.payload], b)
	m.iovs[0] = b[l.payload:]
	// A frame with padding or a VLAN tag is not made part of a GSO packet.
	m.canAppend = m.payload > 0 && !l.tagged && len(b) == end && m.canExtend()
	// The IPv4 identification and the TCP sequence number of the next frame.
	if !l.v6 {
		m.id = binary.BigEndian.Uint16(b[l.l3+4:]) + 1
	}
	if l.proto == protoTCP {
		m.seq = binary.BigEndian.Uint32(b[l.l4+4:]) + uint32(m.payload)
	}
}

// canExtend reports whether m may become a GSO packet: UDP, or TCP with ACK and at most ECN flags.
func (m *message) canExtend() bool {
	l := &m.layout
	if l.proto == protoUDP {
		return true
	}
	return m.headers[l.l4+tcpFlags]&^(tcpCWR|tcpECE) == tcpACK
}

// coalesce appends b to m if it is the next frame of the same flow, and reports whether it did.
func (m *message) coalesce(b []byte) bool {
	l := &m.layout
	h := l.payload
	n := len(b) - h
	if !m.canAppend || n <= 0 || n > m.segmentSize || m.frames == maxSegments || h-l.l3+m.payload+n > maxIP || !m.isNextFrame(b) {
		return false
	}
	p := b[h:]
	last := &m.iovs[m.iovCount-1] // extended if p follows it in memory
	if unsafe.Pointer(unsafe.SliceData(p)) == unsafe.Add(unsafe.Pointer(unsafe.SliceData(*last)), len(*last)) && cap(*last) >= len(*last)+n {
		*last = (*last)[:len(*last)+n]
	} else if m.iovCount == maxIovecs {
		return false
	} else {
		m.iovs[m.iovCount] = p
		m.iovCount++
	}
	m.frames++
	m.payload += n
	m.id++
	m.seq += uint32(n)
	m.canAppend = n == m.segmentSize // a shorter segment must be the last
	if l.proto == protoTCP {
		ending := b[l.l4+tcpFlags] & (tcpFIN | tcpPSH)
		m.headers[l.l4+tcpFlags] |= ending
		m.canAppend = m.canAppend && ending == 0
	}
	return true
}

// isNextFrame reports whether b follows m in its flow: the headers are equal except for lengths and
// checksums, and the IPv4 identification and the TCP sequence number are the next. Of the TCP flags
// b may have FIN and PSH, and only the first frame may have CWR. A frame with padding follows none.
func (m *message) isNextFrame(b []byte) bool {
	l, a := &m.layout, m.headers[:]
	same := func(from, to int) bool { return bytes.Equal(a[from:to], b[from:to]) }
	if l.v6 {
		if !same(0, l.l3+4) || !same(l.l3+6, l.l4+4) || l.ipBytes(b) != len(b)-l.l3 {
			return false
		}
	} else if !same(0, l.l3+2) || !same(l.l3+6, l.l3+10) || !same(l.l3+12, l.l4+4) ||
		binary.BigEndian.Uint16(b[l.l3+4:]) != m.id || l.ipBytes(b) != len(b)-l.l3 {
		return false
	}
	if l.proto == protoUDP {
		return true
	}
	return binary.BigEndian.Uint32(b[l.l4+4:]) == m.seq && same(l.l4+8, l.l4+tcpFlags) &&
		b[l.l4+tcpFlags]&^(tcpFIN|tcpPSH) == a[l.l4+tcpFlags]&^tcpCWR && same(l.l4+14, l.l4+16) && same(l.l4+18, l.payload)
}

// finish completes m before it is sent: it sets the vnet header and, of coalesced frames, the
// length fields. A message without headers of its own, with the whole packet in iovs, is complete.
func (m *message) finish() {
	if m.headerLen == 0 {
		return
	}
	l := &m.layout
	v := vnetHeader{
		flags: vnetNeedsChecksum, headerLen: uint16(l.payload),
		csumStart: uint16(l.l4), csumOffset: uint16(l.checksumAt() - l.l4),
	}
	if m.frames > 1 {
		v.gsoSize = uint16(m.segmentSize)
		switch {
		case l.proto == protoUDP:
			v.gsoType = gsoUDP
		case l.v6:
			v.gsoType = gsoTCPv6
		default:
			v.gsoType = gsoTCPv4
		}
		if l.proto == protoTCP && m.headers[l.l4+tcpFlags]&tcpCWR != 0 {
			v.gsoType |= gsoECN
		}
		l.setLength(m.headers[:], m.payload)
	}
	v.put(m.vnet[:])
}

// bytes returns the total length of the frames of m, after segmentation if it is a GSO packet.
func (m *message) bytes() int {
	n := m.headerLen * m.frames
	for _, p := range m.iovs[:m.iovCount] {
		n += len(p)
	}
	if m.headerLen == 0 && m.frames > 1 { // a GSO packet as received
		v := packet{bytes: m.iovs[0], vnet: parseVnet(m.vnet[:])}
		_, _, n = v.frames()
	}
	return n
}
