package conform

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Flags of a TCP segment.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
)

const (
	tcpHeader = 20
	tcpWindow = 0xffff
	// maxSegment is the payload of a segment, which fits a jumbo frame.
	maxSegment = 8192
)

// flow is an invented TCP connection, which carries the recorded data of a stream in a capture.
type flow struct {
	peer, device end
	peerDialled  bool // the peer sends the SYN
}

// end is one end of a flow.
type end struct {
	addr    netip.AddrPort
	next    uint32 // next sequence number
	finSent bool
}

// Initial sequence numbers, easy to distinguish in a capture.
const (
	peerFirst   = 1_000_000
	deviceFirst = 5_000_000
)

// segment is a segment of the handshake.
type segment struct {
	data []byte
	out  bool // sent by the peer
}

// handshake returns the segments of the three-way handshake, and advances the sequence numbers.
func (f *flow) handshake() []segment {
	dialler, listener := &f.peer, &f.device
	if !f.peerDialled {
		dialler, listener = listener, dialler
	}
	var noPayload []byte
	const noAck = 0
	syn := segment{buildPacket(dialler, listener, tcpSYN, noAck, noPayload), f.peerDialled}
	dialler.next++
	synAck := segment{buildPacket(listener, dialler, tcpSYN|tcpACK, dialler.next, noPayload), !f.peerDialled}
	listener.next++
	return []segment{syn, synAck, {buildPacket(dialler, listener, tcpACK, listener.next, noPayload), f.peerDialled}}
}

// segments returns the IP packets of the TCP segments for an event: the data in segments of at
// most maxSegment octets, a FIN, or an RST. It advances the sequence numbers. The suite, which is
// the device's peer, records the events: EventSent is from the peer to the device. EventReset does
// not say which end sent the RST; it is written as one of the device.
func (f *flow) segments(e *conformance.Event) (all [][]byte) {
	from, to := &f.device, &f.peer
	if e.Kind == conformance.EventSent || e.Kind == conformance.EventSentFIN {
		from, to = to, from
	}
	switch e.Kind {
	case conformance.EventSent, conformance.EventReceived:
		for rest := e.Data; len(rest) > 0; {
			n := min(len(rest), maxSegment)
			flags := byte(tcpACK)
			if n == len(rest) {
				flags |= tcpPSH
			}
			all = append(all, buildPacket(from, to, flags, to.next, rest[:n]))
			from.next += uint32(n)
			rest = rest[n:]
		}
	case conformance.EventSentFIN, conformance.EventReceivedFIN:
		if from.finSent {
			return nil // EOF may be read repeatedly
		}
		all = append(all, buildPacket(from, to, tcpFIN|tcpACK, to.next, nil))
		from.next++
		from.finSent = true
	case conformance.EventReset:
		all = append(all, buildPacket(from, to, tcpRST|tcpACK, to.next, nil))
	}
	return all
}

// buildPacket returns the IP packet of a TCP segment, with checksums.
func buildPacket(from, to *end, flags byte, ack uint32, payload []byte) []byte {
	b := make([]byte, 0, tcpHeader+len(payload))
	b = binary.BigEndian.AppendUint16(b, from.addr.Port())
	b = binary.BigEndian.AppendUint16(b, to.addr.Port())
	b = binary.BigEndian.AppendUint32(b, from.next)
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, tcpHeader/4<<4, flags)
	b = binary.BigEndian.AppendUint16(b, tcpWindow)
	b = append(b, 0, 0, 0, 0) // checksum, urgent pointer
	b = append(b, payload...)
	src, dst := from.addr.Addr().Unmap(), to.addr.Addr().Unmap()
	binary.BigEndian.PutUint16(b[16:], packet.Checksum(pseudoHeader(src, dst, packet.ProtocolTCP, len(b)), b))
	return packet.IP{Src: src, Dst: dst, Protocol: new(uint8(packet.ProtocolTCP))}.Append(nil, b)
}

// pseudoHeader returns the pseudo-header of a TCP or UDP checksum.
func pseudoHeader(src, dst netip.Addr, protocol byte, length int) []byte {
	b := append(src.AsSlice(), dst.AsSlice()...)
	if src.Is4() {
		return append(b, 0, protocol, byte(length>>8), byte(length))
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(length)), 0, 0, 0, protocol)
}
