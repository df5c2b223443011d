package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// seqNum is a sequence number, modulo 2^32: compare with sub.
type seqNum uint32

// sub returns the signed distance from t to s.
func (s seqNum) sub(t seqNum) int { return int(int32(s - t)) }

// add returns the sequence number n octets later.
func (s seqNum) add(n int) seqNum { return s + seqNum(uint32(n)) }

// tcpFlags are flags of a segment, as bits of its header.
type tcpFlags uint8

// The flags.
const (
	fin tcpFlags = 1 << iota
	syn
	rst
	psh
	ack
	urg
)

// segment is a TCP segment with its addresses.
type segment struct {
	src, dst netip.AddrPort
	seq, ack seqNum
	flags    tcpFlags
	window   uint16
	mss      uint16 // the option; 0 if there is none
	payload  []byte
}

const tcpHeaderLen = 20

// Kinds of TCP options.
const (
	endOfOptions = 0
	noOperation  = 1
	mssKind      = 2
)

// len is the number of sequence numbers that the segment takes: one for each octet, SYN and FIN.
func (s *segment) len() int {
	n := len(s.payload)
	if s.flags&syn != 0 {
		n++
	}
	if s.flags&fin != 0 {
		n++
	}
	return n
}

// String formats a segment.
func (s *segment) String() string {
	words, _, _ := DescribeTCP(s.packet())
	return fmt.Sprintf("%v > %v %s, %d octets", s.src, s.dst, words, len(s.payload))
}

// packet returns the IP packet of the segment, with the TCP checksum and, if mss is set, the MSS
// option.
func (s *segment) packet() []byte {
	size := tcpHeaderLen
	if s.mss != 0 {
		size += 4
	}
	b := make([]byte, size, size+len(s.payload))
	binary.BigEndian.PutUint16(b, s.src.Port())
	binary.BigEndian.PutUint16(b[2:], s.dst.Port())
	binary.BigEndian.PutUint32(b[4:], uint32(s.seq))
	binary.BigEndian.PutUint32(b[8:], uint32(s.ack))
	b[12], b[13] = byte(size/4)<<4, byte(s.flags)
	binary.BigEndian.PutUint16(b[14:], s.window)
	if s.mss != 0 {
		b[20], b[21] = mssKind, 4
		binary.BigEndian.PutUint16(b[22:], s.mss)
	}
	b = append(b, s.payload...)
	ip := packet.IP{Src: s.src.Addr(), Dst: s.dst.Addr(), Protocol: new(uint8(packet.ProtocolTCP))}
	binary.BigEndian.PutUint16(b[16:], tcpChecksum(ip.Src, ip.Dst, b))
	return ip.Append(nil, b)
}

// tcpChecksum returns the TCP checksum of a segment.
func tcpChecksum(src, dst netip.Addr, b []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(b)))
	return packet.Checksum(append(pseudo, 0, 0, 0, packet.ProtocolTCP), b)
}

var errNotTCP = errors.New("not TCP")

// parseSegment parses an IP packet with a TCP segment and maybe padding. The payload aliases b.
func parseSegment(b []byte) (s segment, err error) {
	ip, t, _, err := packet.ParseIP(b)
	if err != nil {
		return s, err
	}
	if *ip.Protocol != packet.ProtocolTCP || ip.Fragmented() {
		return s, errNotTCP
	}
	if len(t) < tcpHeaderLen {
		return s, fmt.Errorf("TCP header: %w: %d of %d bytes", packet.ErrShort, len(t), tcpHeaderLen)
	}
	size := int(t[12]>>4) * 4
	if size < tcpHeaderLen || size > len(t) {
		return s, fmt.Errorf("TCP header of %d bytes in a segment of %d", size, len(t))
	}
	if tcpChecksum(ip.Src, ip.Dst, t) != 0 {
		return s, errors.New("wrong TCP checksum")
	}
	s = segment{
		src: netip.AddrPortFrom(ip.Src, binary.BigEndian.Uint16(t)), dst: netip.AddrPortFrom(ip.Dst, binary.BigEndian.Uint16(t[2:])),
		seq: seqNum(binary.BigEndian.Uint32(t[4:])), ack: seqNum(binary.BigEndian.Uint32(t[8:])),
		flags: tcpFlags(t[13]), window: binary.BigEndian.Uint16(t[14:]), payload: t[size:],
	}
	s.mss = parseMSS(t[tcpHeaderLen:size])
	return s, nil
}

// parseMSS returns the MSS option; 0 if there is none.
func parseMSS(options []byte) uint16 {
	for len(options) > 0 {
		switch kind := options[0]; {
		case kind == endOfOptions:
			return 0
		case kind == noOperation:
			options = options[1:]
		case len(options) < 2 || options[1] < 2 || int(options[1]) > len(options):
			return 0
		case kind == mssKind && options[1] == 4:
			return binary.BigEndian.Uint16(options[2:])
		default:
			options = options[options[1]:]
		}
	}
	return 0
}

// DescribeTCP formats the TCP segment of an IP packet, and returns the segment's payload. ok is false
// if the packet has no valid TCP segment.
func DescribeTCP(packet []byte) (text string, payload []byte, ok bool) {
	s, err := parseSegment(packet)
	if err != nil {
		return "", nil, false
	}
	for _, f := range []struct {
		flag tcpFlags
		name string
	}{{syn, "SYN "}, {fin, "FIN "}, {rst, "RST "}} {
		if s.flags&f.flag != 0 {
			text += f.name
		}
	}
	text += fmt.Sprintf("seq %d", s.seq)
	if s.flags&ack != 0 {
		text += fmt.Sprintf(" ack %d", s.ack)
	}
	if s.mss != 0 {
		text += fmt.Sprintf(" mss %d", s.mss)
	}
	if s.window == 0 && s.flags&rst == 0 {
		text += " no window"
	}
	return text, s.payload, true
}
