package random

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// unreliableChecker checks the messages of an unreliable connection: they may be lost, and
// duplicated or reordered if the network does that, but must be intact.
type unreliableChecker struct {
	incoming
	arrivalCounts []int // by message
	highest       int
}

// complete is always true: only the peer knows whether more messages follow.
func (x *unreliableChecker) complete() bool   { return true }
func (x *unreliableChecker) peerStopped()     {}
func (x *unreliableChecker) status() string   { return "" }
func (x *unreliableChecker) counts() Arrivals { return x.arrivals }

// receive handles the completion of a receive: it finds out which message of the plan has arrived,
// checks its source, completion and bytes, and counts the arrival.
func (x *unreliableChecker) receive(wc *verbs.WC, r *recvRing, slot int) error {
	inReceive := int(wc.ByteLen)
	if wc.Opcode == verbs.WCOpRecvRDMAWithImm {
		inReceive = 0
	}
	// UC reuses the receive of a dropped message.
	msg, err := r.message(slot, inReceive, x.conn.spec.Service == UC)
	if err != nil {
		return x.violation(noRequest, "nothing but the message in the receive", err.Error()).as(traffic.Contents)
	}
	grh := []byte(nil)
	if x.conn.spec.Service == UD {
		if len(msg) < verbs.GRHLen {
			return x.violation(noRequest, fmt.Sprintf("at least %d bytes", verbs.GRHLen), fmt.Sprintf("datagram of %d", len(msg)))
		}
		grh, msg = msg[:verbs.GRHLen], msg[verbs.GRHLen:]
	}
	n, err := x.identify(wc, msg)
	if err != nil {
		return err
	}
	x.conn.end.trace("connection %d received %d", x.conn.index, n)
	if grh != nil {
		o := &x.plan.ops[n]
		if want, got := x.conn.checkHeaderArea(wc, grh, ipPayloadLen(&x.conn.end.w.Traits, o)); want != "" {
			return x.violation(n, want, got)
		}
	}
	if err := x.checkMessage(wc, msg, n); err != nil {
		return err
	}
	return x.countArrival(n)
}

// identify returns the number of a message. The sender has put it into the immediate data or, if
// there is none, into the first bytes of the message (see stamp).
func (x *unreliableChecker) identify(wc *verbs.WC, msg []byte) (int, error) {
	var n uint64
	switch {
	case wc.Flags&verbs.WCWithImm != 0:
		n = uint64(wc.Imm)
	case len(msg) >= traffic.StampLen:
		n = word(msg) ^ traffic.Mix(x.plan.key) // undoes stamp; of other bytes n is most likely too large
	default:
		return 0, x.violation(noRequest, "a message of the plan", fmt.Sprintf("%d bytes without immediate data", len(msg)))
	}
	if n >= uint64(len(x.plan.ops)) {
		return 0, x.violation(noRequest, fmt.Sprintf("one of %d messages", len(x.plan.ops)), fmt.Sprintf("a message that says it is number %d", n))
	}
	return int(n), nil
}

// checkMessage compares the completion and every byte of message n.
func (x *unreliableChecker) checkMessage(wc *verbs.WC, msg []byte, n int) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.fillPayload(n, want)
	opcode := verbs.WCOpRecv
	if o.code == verbs.OpRDMAWriteImm {
		opcode = verbs.WCOpRecvRDMAWithImm
		msg = x.conn.bytes[o.at : o.at+o.size]
		if int(wc.ByteLen) != o.size {
			return x.violation(n, fmt.Sprintf("%d bytes", o.size), fmt.Sprintf("completion with %d bytes", wc.ByteLen))
		}
	} else {
		stamp(want, x.plan.key, n)
	}
	hasImm := wc.Flags&verbs.WCWithImm != 0
	if wc.Opcode != opcode || hasImm != o.withImm() || !o.takesReceive() {
		return x.violation(n, fmt.Sprintf("%v, immediate data: %v", opcode, o.withImm()), fmt.Sprintf("%v with flags %#x", wc.Opcode, wc.Flags))
	}
	if diff := traffic.FirstDifference(want, msg); diff != "" {
		return x.violation(n, "the bytes that were sent", diff).as(traffic.Contents)
	}
	return nil
}

// countArrival counts an arrival, and checks for duplicates and reordering.
func (x *unreliableChecker) countArrival(n int) error {
	x.arrivalCounts[n]++
	allowed := x.conn.end.w.Network
	if x.arrivalCounts[n] > 1 {
		if x.arrivals.Duplicated++; !allowed.Duplicates {
			return x.violation(n, "each message at most once", fmt.Sprintf("arrival number %d", x.arrivalCounts[n])).as(traffic.Delivery)
		}
		return nil
	}
	x.deliver(n)
	if n < x.highest {
		// If the original is lost, its delayed duplicate is the first to arrive.
		if x.arrivals.Reordered++; !allowed.Reorders && !allowed.Duplicates {
			return x.violation(n, "messages in order", fmt.Sprintf("it came after message %d", x.highest)).as(traffic.Delivery)
		}
	}
	x.highest = max(x.highest, n)
	return nil
}

// deliver counts message n as delivered.
func (x *unreliableChecker) deliver(n int) {
	x.arrivals.Delivered++
	x.arrivals.Bytes += int64(x.plan.ops[n].size)
}

// verify checks the memory of writes that no completion has reported: those without immediate data,
// and those whose immediate data was lost. It counts lost messages, which are a violation if
// neither network nor receives explain them.
func (x *unreliableChecker) verify(*connReport) error {
	initial := initialTarget(x.conn.end.w, x.conn.index, x.conn.end.side)
	for n := range x.plan.ops {
		o := &x.plan.ops[n]
		switch {
		case o.code == verbs.OpRDMAWrite:
			if err := x.checkWrite(n, initial); err != nil {
				return err
			}
		case o.code == verbs.OpRDMAWriteImm && x.arrivalCounts[n] == 0:
			if err := x.checkWriteBytes(n, initial); err != nil {
				return err
			}
		}
		if o.takesReceive() && x.arrivalCounts[n] == 0 {
			x.arrivals.Lost++
		}
	}
	// Every message is sure to have had a receive if all were posted at the start.
	c := x.conn
	enoughReceives := c.ring != nil && c.ring.depth >= len(x.plan.ops) && c.spec.RecvPacing == (Pacing{})
	if x.arrivals.Lost > 0 && !c.end.w.Network.Loses && enoughReceives {
		return x.violation(noRequest, "all messages: the network loses none", fmt.Sprintf("%d lost", x.arrivals.Lost)).as(traffic.Delivery)
	}
	return nil
}

// checkWrite checks a write without immediate data. No completion tells whether it arrived: if all
// its bytes are in memory it counts as delivered, otherwise as lost, although part may be there.
func (x *unreliableChecker) checkWrite(n int, initial []byte) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.fillPayload(n, want)
	switch got := x.conn.bytes[o.at : o.at+o.size]; {
	case bytes.Equal(got, want):
		x.deliver(n)
		return nil
	case !bytes.Equal(got, initial[o.at:o.at+o.size]):
		x.arrivals.Partial++
	}
	x.arrivals.Lost++
	return x.checkWriteBytes(n, initial)
}

// checkWriteBytes checks that each byte of a write has its new or its initial value.
func (x *unreliableChecker) checkWriteBytes(n int, initial []byte) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.fillPayload(n, want)
	for i := range want {
		if got := x.conn.bytes[o.at+i]; got != want[i] && got != initial[o.at+i] {
			return x.violation(n, "only bytes of this write in its place", fmt.Sprintf("byte %d is %#02x", i, got)).as(traffic.Contents)
		}
	}
	return nil
}

// grhLen is the length of the GRH in a receive.
func (c *conn) grhLen() int {
	if c.spec.Service.Datagram() {
		return verbs.GRHLen
	}
	return 0
}

// anyLength is the length of a packet that the GRH does not determine.
const anyLength = -1

// ipPayloadLen is the payload length of the IP packet that the GRH of a datagram reports. With
// UDPPortInGRH (datagram-iWARP), the GRH describes a UDP packet with the message alone.
func ipPayloadLen(traits *traffic.TransportTraits, o *op) int {
	const udp, bth, deth, icrc = 8, 12, 8, 4
	if traits.UDPPortInGRH {
		return udp + o.size
	}
	carried := udp + bth + deth + (o.size+3)&^3 + icrc
	if o.withImm() {
		carried += 4
	}
	return carried
}

// datagramPort is the default UDP port of datagram-iWARP.
const datagramPort = 65041

// checkHeaderArea checks the source QP in the completion of a datagram, and the IP header in its GRH:
// addresses, protocol, DSCP and, unless ipPayload is anyLength, the payload length. Some devices store
// the UDP source port in octets 2 and 3. It returns the expected and the actual value of the first
// difference, or empty strings.
func (c *conn) checkHeaderArea(wc *verbs.WC, grh []byte, ipPayload int) (want, got string) {
	peer, traits := &c.end.peer, &c.end.w.Traits
	if wc.Flags&verbs.WCWithGRH == 0 || wc.SrcQP != peer.Conns[c.index].QPN {
		return fmt.Sprintf("a global header and source QP %#x", peer.Conns[c.index].QPN), fmt.Sprintf("flags %#x, source QP %#x", wc.Flags, wc.SrcQP)
	}
	reply, err := verbs.InitAHFromWC(1, c.end.env.GIDIndex, wc, grh)
	if err != nil {
		return "an address to reply to", err.Error()
	}
	if reply.GRH.DGID != peer.GID {
		return fmt.Sprintf("source %v in the header area", peer.GID), reply.GRH.DGID.String()
	}
	h, err := parseGRH(grh)
	if err != nil {
		return "an IP header in the header area", err.Error()
	}
	switch {
	case h.dst != c.end.gid.Addr():
		return fmt.Sprintf("destination %v in the header area", c.end.gid), h.dst.String()
	case ipPayload != anyLength && h.payloadLen != ipPayload:
		return fmt.Sprintf("an IP packet that carries %d bytes", ipPayload), fmt.Sprint(h.payloadLen)
	case h.protocol != 17:
		return "UDP (17) in the header area", fmt.Sprint(h.protocol)
	case c.spec.TrafficClass != 0 && // for 0 a device may use a default of its own
		h.tclass>>2 != c.spec.TrafficClass>>2:
		return fmt.Sprintf("DSCP %d", c.spec.TrafficClass>>2), fmt.Sprint(h.tclass >> 2)
	case traits.UDPPortInGRH && binary.BigEndian.Uint16(grh[2:]) != datagramPort:
		return fmt.Sprintf("source port %d in octets 2 and 3 of the header area", datagramPort), fmt.Sprint(binary.BigEndian.Uint16(grh[2:]))
	}
	return "", ""
}

// ipHeader holds the fields of the GRH.
type ipHeader struct {
	dst        netip.Addr
	payloadLen int
	protocol   uint8
	tclass     uint8
}

// parseGRH parses the IPv6 header of a GRH, or the IPv4 header in its last twenty bytes.
func parseGRH(grh []byte) (h ipHeader, err error) {
	be := binary.BigEndian
	if grh[20]>>4 == 4 && grh[20]&0xf == 5 && grh[0]>>4 != 6 {
		b := grh[20:]
		h = ipHeader{dst: netip.AddrFrom4([4]byte(b[16:20])), payloadLen: int(be.Uint16(b[2:])) - 20, protocol: b[9], tclass: b[1]}
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(be.Uint16(b[i:]))
		}
		if sum = sum&0xffff + sum>>16; sum != 0xffff {
			err = fmt.Errorf("IPv4 header checksum is wrong by %#x", ^sum&0xffff)
		}
		return h, err
	}
	if grh[0]>>4 != 6 {
		return h, fmt.Errorf("version %d", grh[0]>>4)
	}
	h = ipHeader{dst: netip.AddrFrom16([16]byte(grh[24:40])), payloadLen: int(be.Uint16(grh[4:])), protocol: grh[6], tclass: grh[0]<<4 | grh[1]>>4}
	return h, nil
}
