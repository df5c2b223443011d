package uswitch

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

const (
	// maxPieces is how many places in memory a message may be gathered from.
	maxPieces = 17
	// maxJoined is how many datagrams make a super-packet: no more than what any
	// kernel that can cut them allows.
	maxJoined = 64
	maxIP     = 1<<16 - 1
)

// message is what goes to the kernel at once: a frame, or neighbours of one
// stream joined to a super-packet.
type message struct {
	vnet    [vnetLen]byte
	pieces  [maxPieces][]byte // the frame after headers
	headers [maxHeader]byte
	layout  layout
	nheader int // bytes in headers; 0: pieces[0] is the whole frame
	npieces int

	frames  int // that it stands for
	size    int // payload of each but the last
	payload int // in all
	open    bool
	id      uint16 // IPv4 identification of the next frame
	seq     uint32 // TCP sequence number of the next frame
}

// whole makes m a packet as it was received.
func (m *message) whole(p *packet) {
	n, _, _ := p.frames()
	m.nheader, m.npieces, m.frames, m.open = 0, 1, n, false
	m.pieces[0] = p.bytes
	p.vnet.put(m.vnet[:])
}

// start makes m a single frame. b must stay as it is until m is sent, except for
// its headers if it is partial.
func (m *message) start(b []byte, partial bool) {
	*(*[vnetLen]byte)(m.vnet[:]) = [vnetLen]byte{}
	m.nheader, m.npieces, m.frames, m.open = 0, 1, 1, false
	m.pieces[0] = b
	if !partial {
		return
	}
	l, ok := parse(b)
	if !ok {
		return // whoever made it partial sees to it: it arrives as it is
	}
	end := min(len(b), l.l3+l.ipBytes(b))
	m.layout, m.nheader = l, l.payload
	m.payload = max(0, end-l.payload)
	m.size = m.payload
	copy(m.headers[:l.payload], b)
	m.pieces[0] = b[l.payload:]
	// Padding of a short frame has no place in a super-packet.
	m.open = m.payload > 0 && !l.tagged && len(b) == end && m.mayContinue()
	if !l.v6 {
		m.id = binary.BigEndian.Uint16(b[l.l3+4:]) + 1
	}
	if l.proto == protoTCP {
		m.seq = binary.BigEndian.Uint32(b[l.l4+4:]) + uint32(m.payload)
	}
}

// mayContinue reports whether another frame may follow the headers in m.
func (m *message) mayContinue() bool {
	l := &m.layout
	if l.proto == protoUDP {
		return true
	}
	return m.headers[l.l4+13]&^(tcpCWR|0x40) == 0x10 // ACK, with or without ECN's flags
}

// join adds b to m if it is the next frame of the same stream.
func (m *message) join(b []byte) bool {
	l := &m.layout
	h := l.payload
	n := len(b) - h
	if !m.open || n <= 0 || n > m.size || m.frames == maxJoined || h-l.l3+m.payload+n > maxIP || !m.continues(b) {
		return false
	}
	p := b[h:]
	last := &m.pieces[m.npieces-1]
	if unsafe.Pointer(unsafe.SliceData(p)) == unsafe.Add(unsafe.Pointer(unsafe.SliceData(*last)), len(*last)) && cap(*last) >= len(*last)+n {
		*last = (*last)[:len(*last)+n]
	} else if m.npieces == maxPieces {
		return false
	} else {
		m.pieces[m.npieces] = p
		m.npieces++
	}
	m.frames++
	m.payload += n
	m.id++
	m.seq += uint32(n)
	m.open = n == m.size
	if l.proto == protoTCP {
		last := b[l.l4+13] & (tcpFIN | tcpPSH)
		m.headers[l.l4+13] |= last
		m.open = m.open && last == 0
	}
	return true
}

// continues compares the headers of b with those of m: all must be the same but
// for what the kernel counts up when it cuts.
func (m *message) continues(b []byte) bool {
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
	return binary.BigEndian.Uint32(b[l.l4+4:]) == m.seq && same(l.l4+8, l.l4+13) &&
		b[l.l4+13]&^(tcpFIN|tcpPSH) == a[l.l4+13]&^tcpCWR && same(l.l4+14, l.l4+16) && same(l.l4+18, l.payload)
}

// finish makes the headers of m right for what it holds.
func (m *message) finish() {
	if m.nheader == 0 {
		return
	}
	l := &m.layout
	v := vnetHeader{
		flags: vnetNeedsChecksum, headerLen: uint16(l.payload),
		checksumAt: uint16(l.l4), checksumOff: uint16(l.checksumAt() - l.l4),
	}
	if m.frames > 1 {
		v.gsoSize = uint16(m.size)
		switch {
		case l.proto == protoUDP:
			v.gsoType = gsoUDP
		case l.v6:
			v.gsoType = gsoTCPv6
		default:
			v.gsoType = gsoTCPv4
		}
		if l.proto == protoTCP && m.headers[l.l4+13]&tcpCWR != 0 {
			v.gsoType |= gsoECN
		}
		l.setLength(m.headers[:], m.payload)
	}
	v.put(m.vnet[:])
}

// bytes is the length of the frames that m stands for.
func (m *message) bytes() int {
	n := m.nheader * m.frames
	for _, p := range m.pieces[:m.npieces] {
		n += len(p)
	}
	if m.nheader == 0 && m.frames > 1 {
		v := packet{bytes: m.pieces[0], vnet: parseVnet(m.vnet[:])}
		_, _, n = v.frames()
	}
	return n
}
