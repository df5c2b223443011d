package conform

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/pcapng"
)

// A ladder is limited in length. Steps in the middle are omitted, since the setup is at the
// beginning and the failure at the end.
const (
	firstSteps = 60
	lastSteps  = 140
)

var kinds = map[conformance.EventKind]string{
	conformance.EventNote: Note, conformance.EventSent: Sent, conformance.EventReceived: Received,
	conformance.EventSentFIN: FinSent, conformance.EventReceivedFIN: FinReceived, conformance.EventReset: Reset,
}

// eventsByTime returns the events of a record sorted by time, and how many the record has omitted.
// The record has packets in the order in which the case took them from its queue. Stream data is
// left out if the record also has the packets that carried it.
func eventsByTime(r *conformance.Record) (events []conformance.Event, omitted int) {
	kept, omitted := r.Events()
	events = slices.DeleteFunc(slices.Clone(kept), func(e conformance.Event) bool {
		return e.Stream > 0 && r.Stream(e.Stream).InPackets // the packets that carry the stream are events, too
	})
	slices.SortStableFunc(events, func(a, b conformance.Event) int { return cmp.Compare(a.At, b.At) })
	return events, omitted
}

// NewLadder returns the ladder diagram of a case; line formats an event. In the place of the middle
// of a long record is a step with the number of omitted events. It includes those that the record
// dropped.
func NewLadder(r *conformance.Record, line func(*conformance.Event) string) *Ladder {
	events, omitted := eventsByTime(r)
	l := &Ladder{Beyond: omitted, Steps: []Step{}}
	if n := len(events) - firstSteps - lastSteps; n > 1 {
		l.Beyond += n
		events = slices.Delete(events, firstSteps, firstSteps+n)
	}
	for i := range events {
		if l.Beyond > 0 && i == firstSteps {
			l.Steps = append(l.Steps, Step{At: events[i].At, Kind: Gap, Text: fmt.Sprintf("%d more", l.Beyond)})
		}
		e := &events[i]
		l.Steps = append(l.Steps, Step{At: e.At, Kind: kinds[e.Kind], Text: line(e), Stream: e.Stream})
	}
	return l
}

// WriteCapture writes the packets of a case as a pcapng file; begun is the start of the case. Notes
// become comments of the next packet; notes after the last packet are left out. Stream data is
// written as TCP segments with invented handshakes, sequence numbers and checksums, which Wireshark
// can follow.
//
// If all UDP checksums over IPv6 are 0, as in RoCEv2, they are filled in, since Wireshark
// rejects 0; the file has a comment about it.
func WriteCapture(w io.Writer, r *conformance.Record, begun time.Time) error {
	events, _ := eventsByTime(r)
	comment := ""
	fillChecksums := allWithoutChecksum(events)
	if fillChecksums {
		comment = checksumComment
	}
	ng := pcapng.NewWriter(w)
	if err := ng.WriteSection("", comment); err != nil {
		return err
	}
	if _, err := ng.AddInterface("", pcapng.RawIP); err != nil {
		return err
	}
	var notes []string
	flows := make(map[int]*flow)
	for i := range events {
		e := &events[i]
		if e.Kind == conformance.EventNote {
			notes = append(notes, e.Text)
			continue
		}
		packets := [][]byte{e.Data}
		if e.Stream > 0 {
			f := flows[e.Stream]
			if f == nil {
				s := r.Stream(e.Stream)
				f = &flow{peer: end{addr: s.Peer, next: peerFirst}, device: end{addr: s.Device, next: deviceFirst}, peerDialled: peerSendsFirst(events[i:], e.Stream)}
				flows[e.Stream] = f
				// Write the three segments of the handshake 300, 200 and 100 ns before the first
				// data.
				for j, p := range f.handshake() {
					at := e.At - time.Duration(3-j)*100*time.Nanosecond
					if err := writePacket(ng, begun.Add(max(0, at)), p.out, p.data, nil); err != nil {
						return err
					}
				}
			}
			packets = f.segments(e)
		}
		if fillChecksums && e.Stream == 0 {
			packets[0] = withChecksum(packets[0])
		}
		out := e.Kind == conformance.EventSent || e.Kind == conformance.EventSentFIN
		for _, p := range packets {
			if err := writePacket(ng, begun.Add(e.At), out, p, notes); err != nil {
				return err
			}
			notes = nil
		}
	}
	return ng.Flush()
}

// writePacket adds a packet to a capture, with its notes as one comment. out means that the peer of
// the device sent it.
func writePacket(ng *pcapng.Writer, at time.Time, out bool, data []byte, notes []string) error {
	p := pcapng.Packet{At: at, Bytes: data, Direction: pcapng.Inbound}
	if out {
		p.Direction = pcapng.Outbound
	}
	if len(notes) > 0 {
		const maxComment = 0xfff0 // of a pcapng option
		comment := strings.Join(notes, "\n")
		p.Comment = comment[:min(len(comment), maxComment)]
	}
	return ng.WritePacket(&p)
}

// peerSendsFirst reports whether the peer of the device, which recorded the events, sent the first data
// of a stream; true without data. In MPA that side has opened the connection.
func peerSendsFirst(events []conformance.Event, stream int) bool {
	i := slices.IndexFunc(events, func(e conformance.Event) bool {
		return e.Stream == stream && (e.Kind == conformance.EventSent || e.Kind == conformance.EventReceived)
	})
	return i < 0 || events[i].Kind == conformance.EventSent
}

// checksumComment is the comment of a file with filled-in checksums.
const checksumComment = "fabrictest: every UDP checksum over IPv6 was 0 on the wire, as in RoCEv2 (IBTA A17.3.2.4); " +
	"Wireshark calls that illegal, so they are filled in here"

const (
	ipv6Header   = 40
	udpHeader    = 8
	nextHeaderAt = 6
	checksumAt   = 6
)

// udp6 returns the UDP datagram of an IPv6 packet. ok is false if the packet has extension headers,
// is not UDP, or is too short.
func udp6(b []byte) (datagram []byte, ok bool) {
	if len(b) < ipv6Header+udpHeader || b[0]>>4 != 6 || b[nextHeaderAt] != packet.ProtocolUDP {
		return nil, false
	}
	datagram = b[ipv6Header:]
	n := int(binary.BigEndian.Uint16(datagram[4:]))
	if n < udpHeader || n > len(datagram) {
		return nil, false
	}
	return datagram[:n], true
}

// allWithoutChecksum reports whether there are UDP datagrams over IPv6, and none has a checksum.
func allWithoutChecksum(events []conformance.Event) (found bool) {
	for i := range events {
		if u, ok := udp6(events[i].Data); ok && events[i].Stream == 0 { // Data is a packet, not TCP data
			if binary.BigEndian.Uint16(u[checksumAt:]) != 0 {
				return false
			}
			found = true
		}
	}
	return found
}

// withChecksum returns a copy of a UDP packet over IPv6 with its UDP checksum, which must be
// zero, filled in. It returns other packets unchanged.
func withChecksum(b []byte) []byte {
	u, ok := udp6(b)
	if !ok {
		return b
	}
	b = slices.Clone(b)
	u = b[ipv6Header:][:len(u)]
	src, dst := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	sum := packet.Checksum(pseudoHeader(src, dst, packet.ProtocolUDP, len(u)), u)
	if sum == 0 { // 0 means that there is no checksum (RFC 768)
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(u[checksumAt:], sum)
	return b
}
