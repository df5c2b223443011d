package interop

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// stream reassembles one direction of a TCP connection.
type stream struct {
	begun    bool
	next     uint32            // sequence number of the first octet that is missing
	early    map[uint32][]byte // segments after missing octets, by sequence number
	earlyLen int               // octets in early
	lost     bool              // early exceeded maxEarlyLen: the stream is no longer read
	acked    uint32            // last acknowledgement number of the other end; 0 before the first
	bytes    []byte            // in order, not yet parsed
}

// maxEarlyLen limits the octets that wait for a missing segment.
const maxEarlyLen = 4 << 20

// add appends the payload of a segment, unless it is a retransmission, or keeps it until the octets
// before it arrive. It ignores segments before the SYN, and those of a lost stream, of which too
// many octets had to be kept.
func (s *stream) add(seg *segment) {
	seq := seg.seq
	if seg.flags&tcpSYN != 0 {
		s.begun, s.next = true, seq+1
		seq++
	}
	if !s.begun || s.lost || len(seg.payload) == 0 {
		return
	}
	if int32(seq-s.next) > 0 {
		s.keep(seq, seg.payload)
		return
	}
	s.appendNew(seq, seg.payload)
	for again := true; again; {
		again = false
		for seq, b := range s.early {
			if int32(seq-s.next) <= 0 {
				delete(s.early, seq)
				s.earlyLen -= len(b)
				s.appendNew(seq, b)
				again = true
			}
		}
	}
}

// keep keeps an out-of-order segment. With more than maxEarlyLen octets kept, the stream is lost.
func (s *stream) keep(seq uint32, payload []byte) {
	if len(s.early[seq]) >= len(payload) {
		return
	}
	if s.early == nil {
		s.early = make(map[uint32][]byte)
	}
	s.earlyLen += len(payload) - len(s.early[seq])
	s.early[seq] = bytes.Clone(payload)
	if s.earlyLen > maxEarlyLen {
		s.lost, s.early = true, nil
	}
}

// appendNew appends those octets of b that were not received before. seq is the sequence number of
// the first octet of b.
func (s *stream) appendNew(seq uint32, b []byte) {
	if known := int(s.next - seq); known < len(b) {
		s.bytes = append(s.bytes, b[known:]...)
		s.next += uint32(len(b) - known)
	}
}

// segment is a TCP segment. Its payload is part of the frame.
type segment struct {
	src, dst netip.AddrPort
	seq, ack uint32
	flags    uint8
	payload  []byte
}

// TCP's flags.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
)

// tcpLen is the length of a TCP header without options.
const tcpLen = 20

// parseFrame returns the TCP segment of an Ethernet frame; ok is false without a complete segment.
func parseFrame(frame []byte) (s segment, ok bool) {
	_, ip, err := packet.ParseEthernet(frame)
	if err != nil {
		return s, false
	}
	h, p, _, err := packet.ParseIP(ip)
	if err != nil || h.Fragmented() || *h.Protocol != packet.ProtocolTCP || len(p) < tcpLen {
		return s, false
	}
	headerLen := int(p[12]>>4) * 4 // the data offset, in units of 4 octets
	if headerLen < tcpLen || headerLen > len(p) {
		return s, false
	}
	return segment{
		src:     netip.AddrPortFrom(h.Src, binary.BigEndian.Uint16(p)),
		dst:     netip.AddrPortFrom(h.Dst, binary.BigEndian.Uint16(p[2:])),
		seq:     binary.BigEndian.Uint32(p[4:]),
		ack:     binary.BigEndian.Uint32(p[8:]),
		flags:   p[13],
		payload: p[headerLen:],
	}, true
}
