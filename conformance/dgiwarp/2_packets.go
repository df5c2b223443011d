package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// Lengths of the headers and the CRC of a UD Send.
const (
	headerLen    = 16
	untaggedLen  = 18
	crcLen       = 4
	sendOverhead = headerLen + untaggedLen + crcLen
)

// sendTruncatedAndExtended sends a packet truncated at each octet between its header and its CRC,
// and with 1 and 4 octets too many.
func (p *peer) sendTruncatedAndExtended(pkt iwarp.Packet) {
	whole := len(pkt.Append(nil)) - crcLen
	for n := headerLen; n < whole; n++ {
		p.send(pkt.Cut(n))
	}
	for _, n := range []int{1, 4} {
		p.send(pkt.Trailing(data(n)...))
	}
}

// checkCRC fails the case unless the CRC of a packet is correct.
func (h *host) checkCRC(a arrival) {
	octets, got := a.Raw[:len(a.Raw)-crcLen], a.Raw[len(a.Raw)-crcLen:]
	want := appendCRC(bytes.Clone(octets))[len(octets):]
	h.Check(bytes.Equal(got, want), fmt.Sprintf("the CRC % x", want), "% x in %v", got, a.Packet)
}

// appendCRC appends the CRC of a packet.
func appendCRC(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, iwarp.CRC32c(b)) }

// expectNoEffect expects no response, completion, event, change of memory or change of state.
func (q *deviceQP) expectNoEffect() {
	q.expectIdle()
	q.ExpectNoEvent()
	q.ExpectUntouched(q.targetMem)
	q.ExpectUntouched(q.localMem)
	q.ExpectState(q.qp, verbs.QPStateRTS)
}

// nextMessage returns the packets of the next message of the device, in the order of their offsets.
// Only a real network may reorder them; in virtual time they arrive in order.
func (p *peer) nextMessage() (all []arrival) {
	for {
		a := p.expect(iwarp.PacketOf(iwarp.KindUD))
		if p.Virtual {
			if all = append(all, a); iwarp.Val(a.Segment.DDP.Last) {
				return all
			}
			continue
		}
		if all = p.partial.Add(a); all != nil {
			return all
		}
	}
}

var packetCases = []conformance.Case{{
	ID: "dg/packet/send-as-specified", Cite: cite("2", "dg/pkt/1", "dg/pkt/2", "dg/pkt/5"),
	Title:   "A Send is one UDP datagram with header, DDP segment and CRC, and nothing else",
	Sends:   "nothing; the device sends 5 octets",
	Expects: "43 octets: version 1, kind UD, both QPNs and the key, a Send with MSN 1 without pad, the CRC least significant octet first",
	Defects: []string{"PacketsPadded", "CRCMostFirst"}, Run: onPeer(func(p *peer) {
		got := p.expectSent(p.sendWR(1, 0, 5), iwarp.PacketOf(iwarp.KindUD))
		path := iwarp.PacketPath{Dest: p.qpn, Source: uint32(p.qp.QPN()), Key: p.key}
		want := iwarp.UD(iwarp.Send(1, p.localMem.Buf[:5])).Over(path).Append(nil)
		p.Check(bytes.Equal(got.Raw, want), fmt.Sprintf("% x", want), "% x", got.Raw)
		p.expectSilence(silencePeriod)
	}),
}, {
	ID: "dg/packet/no-octets-behind", Cite: cite("2", "dg/pkt/1", "dg/pkt/6"), Setup: setupRD,
	Title:   "A packet that is too short for its blocks, or that has octets after them, is dropped",
	Sends:   "Challenges, Acks and Refusals of the device's flow that are truncated or 1 or 4 octets too long, with a correct CRC; then valid ones; truncated starts",
	Expects: "nothing in response to the former; the cookie and a completion in response to the latter",
	Defects: []string{"StrangePacketsTaken"}, Run: onPeer(func(p *peer) {
		p.recvStartOf(p.sendWR(1, 0, 8))
		p.sendTruncatedAndExtended(iwarp.Challenge(p.fromDeviceFlow.epoch, p.incarnation, peerCookie+1))
		p.challenge(peerCookie)
		p.sendTruncatedAndExtended(p.ack(1))
		p.expectNoCompletionYet()
		p.send(p.ack(1))
		p.ExpectCompletion(1, verbs.WCSuccess)
		p.PostSend(p.qp, p.sendWR(2, 0, 8))
		p.expectData(1)
		p.sendTruncatedAndExtended(iwarp.Refusal(p.fromDeviceFlow.epoch, iwarp.ReasonUnknownFlow))
		p.expectNoCompletionYet()
		p.ackAndComplete(2)
		p.drainArrived() // a busy machine may have sent request 2 again before the Ack
		const startLen = headerLen + 12 + 16
		for n := headerLen; n < startLen; n++ {
			p.send(p.start(noProof, zeroLengthWrite()).Cut(n))
		}
		p.expectSilence(silencePeriod)
	}),
}, {
	ID: "dg/packet/crc-is-of-all-octets", Cite: cite("2", "dg/pkt/3", "dg/pkt/2"),
	Title:   "Every packet ends with the CRC32c of all octets before it",
	Sends:   "an invalid segment; the device sends messages of 0 to 40 octets and of several packets, and an error message",
	Expects: "a correct CRC in each, least significant octet first",
	Defects: []string{"CRCMostFirst"}, Run: onPeer(func(p *peer) {
		for n := range 41 {
			p.checkCRC(p.expectSent(p.sendWR(uint64(n), n, n), iwarp.UD(iwarp.Send(uint32(n+1), p.localMem.Buf[n:2*n]))))
		}
		p.PostSend(p.qp, p.sendWR(41, 0, 16<<10))
		for _, a := range p.nextMessage() {
			p.checkCRC(a)
		}
		p.sendSegments(unknownKeyWrite())
		p.checkCRC(p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate))))
	}),
}, {
	ID: "dg/packet/every-damaged-bit-is-noticed", Cite: cite("2", "dg/pkt/3", "dg/pkt/6"),
	Title:   "A packet with a single wrong bit is dropped",
	Sends:   "a Send with each of its bits flipped in turn, then the valid one",
	Expects: "no response and no completion, then one for the last",
	Defects: []string{"CRCUnchecked"}, Run: onPeer(func(p *peer) {
		whole := iwarp.UD(iwarp.Send(1, data(20))).Over(p.path()).Append(nil)
		for bit := range 8 * len(whole) {
			damaged := bytes.Clone(whole)
			damaged[bit/8] ^= 1 << (bit % 8)
			p.sendOctets(p.route, damaged)
		}
		p.expectNoEffect()
		p.sendOctets(p.route, whole)
		p.expectRecv(1, data(20))
	}),
}, {
	ID: "dg/packet/headers-below-are-not-covered", Cite: cite("2", "dg/pkt/4"),
	Title:   "The CRC does not cover the IP and UDP headers",
	Sends:   "the same octets from two hosts and two ports, with another traffic class",
	Expects: "a receive of each",
	Defects: []string{"CRCCoversPorts"}, Run: onPeer(func(p *peer) {
		octets := iwarp.UD(iwarp.Send(1, data(20))).Over(p.path()).Append(nil)
		routes := []route{p.defaultRoute(0), p.defaultRoute(1), p.defaultRoute(0).fromPort(peerPort + 1), p.defaultRoute(1).fromPort(1024)}
		for i, w := range routes {
			w.tclass = uint8(i) << 5
			p.sendOctets(w, octets)
			p.expectRecv(uint64(i+1), data(20))
		}
	}),
}, {
	ID: "dg/packet/ragged-lengths-have-no-pad", Cite: cite("2", "dg/pkt/5"),
	Title:   "Messages of every length are sent and accepted without pad",
	Sends:   "messages of 0 to 9 octets; the device sends the same",
	Expects: "receives of the same lengths, and packets of 38 octets more than their messages",
	Defects: []string{"PacketsPadded"}, Run: onSetup(setup{receives: 10}, func(p *peer) {
		for n := range 10 {
			p.expectReceived(uint64(n+1), iwarp.Send(uint32(n+1), data(n)))
			a := p.expectSent(p.sendWR(uint64(n), 0, n), iwarp.UD(iwarp.Op(iwarp.OpSend)))
			p.Check(len(a.Raw) == sendOverhead+n, fmt.Sprintf("a packet of %d octets", sendOverhead+n), "%d", len(a.Raw))
		}
	}),
}, {
	ID: "dg/packet/strange-ones-vanish", Cite: cite("2", "dg/pkt/6"),
	Title:   "A packet of another version or of an unknown kind, or one too short for its blocks, is dropped",
	Sends:   "Sends of every version but 1 and of every unknown kind, and the first 0 to 15 octets of one, all with a correct CRC; an empty datagram",
	Expects: "no response and no completion; then a receive of a valid Send",
	Defects: []string{"StrangePacketsTaken"}, Run: onPeer(func(p *peer) {
		good := iwarp.UD(iwarp.Send(1, data(16)))
		for v := range uint8(16) {
			if v != 1 {
				p.send(good.EditHeader(func(h *iwarp.PacketHeader) { h.Version = &v }))
			}
			if v == 0 || v > uint8(iwarp.KindRefusal) {
				p.send(good.EditHeader(func(h *iwarp.PacketHeader) { h.Kind = new(iwarp.PacketKind(v)) }))
			}
		}
		for n := range headerLen {
			p.send(good.Cut(n))
		}
		p.sendOctets(p.route, nil)
		p.expectNoEffect()
		p.send(good)
		p.expectRecv(1, data(16))
	}),
}, {
	ID: "dg/packet/reserved-is-zero", Cite: cite("2", "dg/pkt/7"),
	Title:   "Reserved bits and octets are zero in packets of a UD queue pair",
	Sends:   "an invalid segment; the device sends messages, and an error message",
	Expects: "octets 1 to 3 of the packets are zero",
	Defects: []string{"ReservedSent"}, Run: onPeer(func(p *peer) {
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.wr(2, verbs.OpRDMAWrite, 0, 8))
		p.sendSegments(unknownKeyWrite())
		for _, a := range p.nextPackets(3) {
			p.Check(len(a.Raw) > 4 && bytes.Equal(a.Raw[1:4], make([]byte, 3)), "zeros in octets 1 to 3", "%v: % x", a.Packet, a.Raw[:4])
		}
	}),
}, {
	ID: "dg/packet/reserved-is-zero-in-rd", Cite: cite("2", "dg/pkt/7"), Setup: setupRD,
	Title:   "Reserved bits and octets are zero in data, Acks, Challenges and Refusals",
	Sends:   "packets that cause each of them",
	Expects: "zeros in the reserved bits",
	Defects: []string{"ReservedSent"}, Run: onPeer(func(p *peer) {
		p.openFlow(zeroLengthWrite())
		ack := p.expectDelivered(zeroLengthWrite())
		p.Check(*ack.Ack.Reserved == 0, "zeros in the reserved octets of an Ack", "%#x", *ack.Ack.Reserved)
		stranger := p.peer(1)
		stranger.startAndRecvChallenge(zeroLengthWrite())
		stranger.toDeviceFlow.epoch++
		stranger.send(stranger.nextDataPacket(zeroLengthWrite()))
		refusal := stranger.expect(iwarp.PacketOf(iwarp.KindRefusal))
		p.Check(*refusal.Refusal.Reserved == 0, "zeros in the reserved octets of a Refusal", "%#x", *refusal.Refusal.Reserved)
		for _, a := range []arrival{ack, refusal, p.recvStartOf(p.sendWR(1, 0, 8))} {
			p.Check(*a.Header.FlagsReserved == 0 && *a.Header.Reserved == 0, "zeros in the reserved bits of the header",
				"%#x and %#x in %v", *a.Header.FlagsReserved, *a.Header.Reserved, a.Packet)
		}
	}),
}, {
	ID: "dg/packet/reserved-is-ignored", Cite: cite("2", "dg/pkt/7"),
	Title:   "Reserved bits and octets are ignored",
	Sends:   "Sends with each bit of octets 1 to 3 set alone, and with all of them",
	Expects: "a receive of each",
	Defects: []string{"ReservedLookedAt"}, Run: onSetup(setup{receives: 25}, func(p *peer) {
		for i := range 25 {
			octets := iwarp.UD(iwarp.Send(uint32(i+1), data(i))).Over(p.path()).Append(nil)
			octets = octets[:len(octets)-crcLen]
			if i < 24 {
				octets[1+i/8] |= 1 << (i % 8)
			} else {
				copy(octets[1:], []byte{0xff, 0xff, 0xff})
			}
			p.sendOctets(p.route, appendCRC(octets))
			p.expectRecv(uint64(i+1), data(i))
		}
	}),
}, {
	ID: "dg/packet/reserved-is-ignored-in-rd", Cite: cite("2", "dg/pkt/7"), Setup: setupRD,
	Title:   "Reserved bits and octets of data, Acks and Challenges are ignored",
	Sends:   "a Challenge, an Ack and data with all reserved bits set",
	Expects: "the cookie, a completion and an Ack",
	Defects: []string{"ReservedLookedAt"}, Run: onPeer(func(p *peer) {
		odd := func(pkt iwarp.Packet) iwarp.Packet {
			return pkt.EditHeader(func(h *iwarp.PacketHeader) { h.Reserved, h.FlagsReserved = new(uint16(0xffff)), new(uint8(3)) })
		}
		p.recvStartOf(p.sendWR(1, 0, 8))
		p.send(odd(iwarp.Challenge(p.fromDeviceFlow.epoch, p.incarnation, peerCookie)))
		p.expectProof(peerCookie)
		p.send(odd(p.ack(1).EditAck(func(a *iwarp.AckBlock) { a.Reserved = new(uint8(0xff)) })))
		p.ExpectCompletion(1, verbs.WCSuccess)
		p.openFlow(zeroLengthWrite())
		p.send(odd(p.nextDataPacket(iwarp.Send(1, data(8)))).AckNow())
		p.expectAck(2)
		p.expectRecv(1, data(8))
	}),
}, {
	ID: "dg/packet/none-is-longer-than-the-path", Cite: cite("2", "dg/pkt/8"),
	Setup:   conformance.Setup{Family: 4, MTU: 1500},
	Title:   "No packet is longer than the path MTU, and over IPv4 all have DF",
	Sends:   "nothing; the device sends 16 KiB over a path MTU of 1500",
	Expects: "packets of at most 1500 octets, none of them a fragment, all with DF",
	Defects: []string{"PathMTUIgnored"}, Run: onPeer(func(p *peer) { p.expectWithinMTU(16 << 10) }),
}, {
	ID: "dg/packet/path-of-576", Cite: cite("2", "dg/pkt/10", "dg/pkt/8"), Setup: conformance.Setup{Family: 4, MTU: 576},
	Title:   "A path MTU of 576 octets is sufficient",
	Sends:   "a Send in a datagram of 512 octets; the device sends 4 KiB over a path MTU of 576",
	Expects: "a receive, and packets of at most 576 octets",
	Defects: []string{"PathMTUIgnored"}, Run: onSetup(setup{receives: 1, recvLen: 512}, expectNarrowPathTraffic),
}, {
	ID: "dg/packet/narrow-path", Cite: cite("2", "dg/pkt/10", "dg/pkt/8"), Setup: conformance.Setup{Family: 4, MTU: 540},
	Title:   "UDP payloads of 512 octets are sent and accepted",
	Sends:   "a Send in a datagram of 512 octets; the device sends 4 KiB over a path MTU of 540",
	Expects: "a receive, and packets of at most 540 octets",
	Defects: []string{"PathMTUIgnored"}, Run: onSetup(setup{receives: 1, recvLen: 512}, expectNarrowPathTraffic),
}}

// expectNarrowPathTraffic fails the case unless messages pass a path with a small MTU in both
// directions: a packet of 512 octets to the device, and a message of many packets from it.
func expectNarrowPathTraffic(p *peer) {
	p.expectReceived(1, iwarp.Send(1, data(512-sendOverhead)))
	p.expectWithinMTU(4 << 10)
}

// expectWithinMTU expects that the device sends a message of n octets. Every packet that a case
// receives is checked against the MTU.
func (p *peer) expectWithinMTU(n int) {
	p.PostSend(p.qp, p.sendWR(1, 0, n))
	var message []byte
	for _, a := range p.nextMessage() {
		message = append(message, a.Segment.Payload...)
	}
	p.Check(bytes.Equal(message, p.localMem.Buf[:n]), fmt.Sprintf("a message of %d octets", n), "%d, or other content", len(message))
}
