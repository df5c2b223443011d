package roce

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// [PacketChecker] checks the ICRC of every packet in all cases. These cases make the device send
// packets of all kinds.
var icrcCases = mostlyRC.Cases(append([]conformance.Case{{
	ID: "icrc/sent/requests-of-every-opcode-and-pad", Cite: annexA17("CA17-22", "icrc/1"), Setup: ipv4,
	Title:   "Requests of every kind and of every padding have a correct ICRC",
	Sends:   "ACKs for the device's requests",
	Expects: "the ICRC by the specification in SENDs, WRITEs, READs and atomics, of one and of several packets, with 0 to 3 pad bytes; in ATOMIC WRITE if the device has it",
	Defects: []string{"ICRCWrong"}, Run: onConn(Setup{}, exchangeAllRequests),
}, {
	ID: "icrc/sent/answers-of-every-kind", Cite: annexA17("CA17-22", "icrc/1"), Needs: verbs.CapAtomics, Setup: ipv4,
	Title:   "ACK, NAKs, READ responses and atomic acknowledgements have a correct ICRC",
	Sends:   "requests that are acknowledged, answered and refused",
	Expects: "the ICRC by the specification in every answer",
	Defects: []string{"ICRCWrong"}, Run: onConn(Setup{Receives: 1}, exchangeAllResponses),
}, {
	ID: "icrc/sent/ipv6-packets", Cite: annexA17("CA17-22", "icrc/1"), Needs: verbs.CapAtomics, Setup: ipv6,
	Title:   "Over IPv6, requests and answers have a correct ICRC",
	Sends:   "ACKs for the device's requests, then requests that are acknowledged, answered and refused",
	Expects: "the ICRC by the specification, which leaves out traffic class, flow label and hop limit",
	Defects: []string{"ICRCWrong"}, Run: onConn(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) {
		a.AH.GRH.TrafficClass, a.AH.GRH.FlowLabel, a.AH.GRH.HopLimit = 0x28, 0xabcde, 9
	}}, func(c *Conn) {
		exchangeAllRequests(c)
		exchangeAllResponses(c)
	}),
}, {
	ID: "icrc/sent/flush-counts-each-byte-once", Cite: annexA17("CA17-22", "icrc/1"), Needs: verbs.CapFlush,
	Title:   "A FLUSH has a correct ICRC, which covers its headers once",
	Sends:   "answers to the device's FLUSH and to its WRITE; a FLUSH",
	Expects: "the ICRC by the specification, and an answer to the FLUSH that has it",
	Defects: []string{"FlushICRCDoubled"}, Run: onConn(Setup{access: allAccess | verbs.AccessFlushGlobal}, func(c *Conn) {
		c.RequireICRCFields()
		c.PostSend(c.QP, verbs.SendWR{
			WRID: 1, Opcode: verbs.OpFlush, Flags: verbs.SendSignaled, Remote: PeerMemory,
			Flush: verbs.Flush{Length: 64, Type: verbs.FlushGlobal},
		})
		c.expect(ib.Flush(c.DevicePSN(0), ib.FlushGlobal, ib.FlushRange, peerMemoryRETH(64)))
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, nil), 1)
		c.exchange(ib.Flush(c.PeerPSN(0), ib.FlushGlobal, ib.FlushRange, c.RETH(0, 64)), ib.ReadResponseOnly(c.PeerPSN(0), 1, []byte{}))
	}),
}, {
	ID: "icrc/received/wrong-icrc-changes-nothing", Cite: annexA17("CA17-24", "icrc/2"),
	Title:   "A packet with a wrong ICRC is dropped: no NAK, no effect, and the expected PSN unchanged",
	Sends:   "a SEND, a WRITE, a READ, an atomic, a READ response and an ACK with one bit wrong in ICRC or payload, then a good SEND with the same PSN; the same with SENDs and WRITEs of UC",
	Expects: "a response to the good one only; of UC, a completion of the good one only",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		if c.Caps.Has(verbs.CapUC) {
			uc := c.connect(Setup{qpType: verbs.QPTypeUC, Receives: 1})
			uc.expectDropped(ucSendOnly(uc.PeerPSN(0), 16).BadICRC())
			uc.expectDropped(ib.WriteOnly(uc.PeerPSN(0), uc.RETH(0, 16), Data(16)).On(ib.UC).BadICRC())
			uc.expectUCDelivery(0, 24, 1)
		}
		if c.Caps.Has(verbs.CapAtomics) {
			c.expectDropped(ib.FetchAdd(c.PeerPSN(0), wordRETH(c.TargetMem, 0), 1).BadICRC())
		}
		c.expectDropped(c.peerSend(0, 16).BadICRC())
		c.expectDropped(c.peerSend(0, 16).InFlight(func(p *ib.Packet) { p.Payload[5] ^= 0x10 }))
		c.expectDropped(c.peerWrite(0, 16).BadICRC())
		c.expectDropped(c.peerRead(0, 16).BadICRC())
		c.expectDropped(c.peerSend(3, 16).BadICRC()) // its PSN would be after a gap
		c.request(0, c.SendWR(100, 8), c.ReadWR(101, 8))
		c.expectDropped(c.peerAck(0, 1).BadICRC())
		c.expectDropped(ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8)).BadICRC())
	}),
}, {
	ID: "icrc/order/byte-reversed-icrc-dropped", Cite: ibta("7.8.1", "icrc/6"),
	Title:   "The ICRC is sent least significant byte first, and a reversed ICRC is wrong",
	Sends:   "SENDs with the bytes of the ICRC reversed, then a correct one",
	Expects: "a response to the last only",
	Defects: []string{"ICRCUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		for n := range 4 {
			c.expectDropped(c.peerSend(0, 16+n).ChooseICRC(bits.ReverseBytes32))
		}
	}),
}, {
	ID: "icrc/masked/tos-ttl-and-checksums-may-change", Cite: annexA17("CA17-22(c)", "icrc/3"), Setup: ipv4,
	Title:   "Fields that routers change in an IPv4 packet are not covered by the ICRC",
	Sends:   "SENDs whose type of service, time to live and UDP checksum change after their ICRC was computed, and the header checksum with them",
	Expects: "an ACK and a completion for each",
	Defects: []string{"ICRCCheckUnmasked"}, Run: onRC(func(c *Conn) {
		// All bits change but the last of ECN: a CE mark is answered.
		c.expectAccepted(0, inFlight(func(p *ib.Packet) { p.IP.TClass = new(uint8(0xfe)) }))
		c.expectAccepted(1, inFlight(func(p *ib.Packet) { p.IP.HopLimit = new(uint8(0xbf)) }))
		c.expectAccepted(2, ib.Packet.WithUDPChecksum)
	}),
}, {
	ID: "icrc/masked/ipv6-class-label-and-hop-limit-may-change", Cite: annexA17("CA17-22(c)", "icrc/3"), Setup: ipv6,
	Title:   "Fields that routers change in an IPv6 packet are not covered by the ICRC",
	Sends:   "SENDs whose traffic class, flow label, hop limit and UDP checksum change after their ICRC was computed",
	Expects: "an ACK and a completion for each",
	Defects: []string{"ICRCCheckUnmasked"}, Run: onRC(func(c *Conn) {
		// All bits change but the last of ECN: a CE mark is answered.
		c.expectAccepted(0, inFlight(func(p *ib.Packet) { p.IP.TClass = new(uint8(0xfe)) }))
		c.expectAccepted(1, inFlight(func(p *ib.Packet) { p.IP.FlowLabel = new(uint32(0xfffff)) }))
		c.expectAccepted(2, inFlight(func(p *ib.Packet) { p.IP.HopLimit = new(uint8(0xbf)) }))
		c.expectAccepted(3, ib.Packet.WithUDPChecksum)
	}),
}, {
	ID: "icrc/masked/fecn-becn-and-their-reserved-bits-may-change", Cite: ibta("7.8.1", "icrc/4"),
	Title:   "FECN, BECN and the six reserved bits beside them are not covered by the ICRC",
	Sends:   "SENDs with FECN, BECN, the reserved bits and all of them set after their ICRC was computed",
	Expects: "an ACK and a completion for each",
	Defects: []string{"ICRCCheckUnmasked"}, Run: onRC(func(c *Conn) {
		for n, b := range []struct {
			fecn, becn bool
			resv       uint8
		}{{fecn: true}, {becn: true}, {resv: 0x3f}, {true, true, 0x3f}} {
			c.expectAccepted(n, inFlight(func(p *ib.Packet) { p.BTH.FECN, p.BTH.BECN, p.BTH.Resv6 = &b.fecn, &b.becn, &b.resv }))
		}
	}),
}, {
	ID: "icrc/covered/ip-identification", Cite: annexA17("CA17-22", "icrc/5"), Setup: ipv4,
	Title:   "The identification of IPv4 is covered by the ICRC",
	Sends:   "SENDs whose identification has another bit after their ICRC was computed; SENDs with identifications of all kinds that are right",
	Expects: "nothing; an ACK and a completion for each",
	Defects: []string{"ICRCUnchecked"}, Run: onRC(func(c *Conn) {
		const id = 0x5a3c
		send := c.peerSend(0, 16)
		send.IP.ID = new(uint32(id))
		for bit := range 16 {
			c.expectDropped(send.InFlight(func(p *ib.Packet) { p.IP.ID = new(uint32(id ^ 1<<bit)) }))
		}
		for n, id := range []uint32{0, id, 0xffff} {
			c.expectAccepted(n, func(p ib.Packet) ib.Packet { p.IP.ID = &id; return p })
		}
	}),
}, {
	ID: "icrc/covered/ip-flags", Cite: annexA17("CA17-22", "icrc/5", "pkt/ip/7"), Setup: ipv4,
	Title:   "The flags of IPv4 are covered by the ICRC",
	Sends:   "SENDs of which DF is cleared, or the reserved flag set, after their ICRC was computed",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		send := c.peerSend(0, 16)
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.IP.DF = new(false) }))
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.IP.ReservedFlag = new(true) }))
	}),
}, {
	ID: "icrc/covered/addresses-ports-and-lengths", Cite: annexA17("CA17-22", "icrc/5"),
	Title:   "Addresses, ports and lengths are covered by the ICRC",
	Sends:   "SENDs whose source address or length is another after their ICRC was computed",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		send := c.peerSend(0, 32)
		// The ICRC is correct for another source address.
		c.expectDropped(send.From(c.PeerAddr(1)).InFlight(func(p *ib.Packet) { p.IP.Src = c.Peer }))
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.Payload = p.Payload[:28] }))
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.Payload = append(p.Payload, 0, 0, 0, 0) }))
	}),
}, {
	ID: "icrc/covered/every-bit-of-the-bth-but-byte-4", Cite: annexA17("CA17-22", "icrc/5"),
	Title:   "Every bit of the BTH but those of byte 4 is covered by the ICRC",
	Sends:   "88 SENDs, each with another bit of the BTH turned after its ICRC was computed",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		bth := c.bthOffset()
		for bit := range 12 * 8 {
			if bit/8 != 4 {
				c.expectDropped(c.peerSend(0, 16).Damaged(flipBit(8*bth + bit)))
			}
		}
	}),
}, {
	ID: "icrc/covered/extension-headers-and-payload", Cite: annexA17("CA17-22", "icrc/5"),
	Title:   "Extension headers and payload are covered by the ICRC, to the last bit",
	Sends:   "a WRITE of 32 bytes with immediate data, with one bit turned in each byte after the BTH in turn",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		const reth, imm, payload, icrc = 16, 4, 32, 4
		begin := 8 * (c.bthOffset() + 12)
		for i := range reth + imm + payload + icrc {
			bit := begin + 8*i + c.Rand.IntN(8)
			c.expectDropped(ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, payload), 7, Data(payload)).AckReq().Damaged(flipBit(bit)))
		}
	}),
}, {
	ID: "icrc/covered/pad-bytes", Cite: ibta("7.8.1", "icrc/7", "icrc/5"),
	Title:   "Pad bytes are covered by the ICRC, and may have any value",
	Sends:   "SENDs of 13 bytes whose pad changes after their ICRC was computed, then one with a pad of ones that its ICRC covers",
	Expects: "nothing; then an ACK, and 13 bytes received",
	Defects: []string{"ICRCUnchecked"}, Run: onRC(func(c *Conn) {
		send := c.peerSend(0, 13)
		for i := range 3 {
			pad := make([]byte, 3)
			pad[i] = 1 << c.Rand.IntN(8)
			c.expectDropped(send.InFlight(func(p *ib.Packet) { p.Pad = pad }))
		}
		c.exchange(send.WithPad([]byte{0xff, 0xff, 0xff}), c.deviceAck(0, 1))
		c.ExpectRecv(1, 13)
		c.ExpectBytes(c.LocalMem, 0, Data(13))
		c.ExpectUnchangedOutside(c.LocalMem, 0, 13)
	}),
}, {
	ID:   "icrc/blind/random-icrcs-are-hardly-ever-accepted",
	Cite: annexA17("CA17-24", "icrc/8"), Level: conformance.May, Setup: ipv4,
	Title:   "A receiver that cannot see all that the ICRC covers still accepts no more than one random ICRC in 32,768",
	Sends:   "SENDs with the ICRC of a packet that differs in one bit of a header, but not in DF or the identification; 16,384 WRITEs of no bytes with random ICRCs, then a good one",
	Expects: "no answer to the SENDs; at most four answers before the last",
	Defects: []string{"ICRCIgnored"}, Run: onRC(func(c *Conn) {
		c.expectHeadersCovered()
		// A receiver that cannot see 16 bits of the header accepts a random ICRC in every fourth
		// run, more than maxAccepted once in 150,000. One that sees the whole header accepts none.
		const attempts, batch, maxAccepted = 1 << 14, 64, 4
		for range attempts / batch {
			for range batch {
				c.Send(c.peerWrite(0, 0).ChooseICRC(func(correct uint32) uint32 { return correct ^ (1 + c.Rand.Uint32N(1<<32-1)) }))
			}
			c.Sync()
			n := len(c.skipped)
			c.Check(n <= maxAccepted, fmt.Sprintf("at most %d of %d random ICRCs accepted", maxAccepted, attempts), "%d already", n)
		}
		c.skipped = nil
		c.exchange(c.peerWrite(0, 0), c.deviceAck(0, 1))
	}),
}}, datagramICRCCase("icrc/sent/datagrams-and-mads", 4), datagramICRCCase("icrc/sent/ipv6-datagrams-and-mads", 6),
	coveredHeaderCase("icrc/covered/ipv4-and-udp-header", 4), coveredHeaderCase("icrc/covered/ipv6-and-udp-header", 6)))

// datagramICRCCase returns the case about the ICRC of packets of UC, UD and QP 1 over IPv4 or IPv6,
// by family.
func datagramICRCCase(id string, family int) conformance.Case {
	return conformance.Case{
		ID: id, Cite: annexA17("CA17-22", "icrc/1"), Setup: conformance.Setup{Family: family},
		Needs: verbs.CapUD | verbs.CapCM, Labels: []string{"service:ud", "service:cm"},
		Title:   fmt.Sprintf("Over IPv%d, datagrams, MADs of the communication manager and UC packets have a correct ICRC", family),
		Sends:   "a REQ for a service without a listener",
		Expects: "the ICRC by the specification in the REJ, in datagrams of 0 to 5 bytes with and without immediate data, and in SENDs and WRITEs of UC",
		Defects: []string{"ICRCWrong"}, Run: OnPort(func(p *Port) {
			p.RequireICRCFields()
			p.SendPacket(ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001)))
			p.cmExpect(ib.REJ{})
			d := p.newUDPort(0, nil)
			for n := range 6 {
				d.post(verbs.OpSend, n)
				d.expectPacket(ib.Op(ib.OpUDSendOnly))
				d.post(verbs.OpSendImm, n)
				d.expectPacket(ib.Op(ib.OpUDSendOnlyImm))
			}
			if p.Caps.Has(verbs.CapUC) {
				c := p.connect(Setup{qpType: verbs.QPTypeUC})
				for _, wr := range c.paddedRequests(verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm) {
					c.PostSend(c.QP, wr)
					c.nextPackets(ib.Packets(int(wr.SGL[0].Length), MTU))
				}
			}
		}),
	}
}

// coveredHeaderCase returns the case about bits of the IPv4 or IPv6 header, by family, and the UDP
// header.
func coveredHeaderCase(id string, family int) conformance.Case {
	return conformance.Case{
		ID: id, Cite: annexA17("CA17-22", "icrc/5"), Setup: conformance.Setup{Family: family},
		Title:   fmt.Sprintf("Every bit of the IPv%d and UDP headers that routers must not change is covered by the ICRC", family),
		Sends:   "for each of these bits, but DF and those of the identification, a SEND with the ICRC of a packet that differs in it",
		Expects: "no response, no effect, and the expected PSN unchanged",
		Defects: []string{"ICRCIgnored"}, Run: acceptsAfter((*Conn).expectHeadersCovered),
	}
}

// expectHeadersCovered fails the case unless the device drops SENDs with the ICRC of a packet that
// differs in one bit of the IP or UDP header. Other cases are about the identification and DF.
func (c *Conn) expectHeadersCovered() {
	const bth, payload, dfOfIPv4 = 12, 32, 8*6 + 1
	size := c.bthOffset() + bth + payload          // of the packet that the ICRC covers
	notTested := []int{1, 4, 5, 8, 10, 11, 26, 27} // bytes of TOS, identification, TTL, checksums
	if c.deviceAddr.Is6() {
		notTested = []int{1, 2, 3, 7, 46, 47} // traffic class, flow label, hop limit, checksum
	}
	for at := range c.bthOffset() {
		bits := 8
		if at == 0 && c.deviceAddr.Is6() {
			bits = 4 // the other four are of the traffic class
		}
		for bit := 8 * at; bit < 8*at+bits && !slices.Contains(notTested, at); bit++ {
			if bit == dfOfIPv4 && c.deviceAddr.Is4() {
				continue
			}
			wrong := c.peerSend(0, payload).ChooseICRC(func(correct uint32) uint32 { return correct ^ icrcChange(size, bit) })
			if lastOfByte := bit == 8*at+bits-1; lastOfByte {
				c.expectDropped(wrong) // also shows that those before were dropped
			} else {
				c.Send(wrong)
			}
		}
	}
}

// icrcChange returns the bits of the ICRC of n bytes that change if a bit of these is flipped. They
// do not depend on the bytes, because a CRC is linear.
func icrcChange(n, bit int) uint32 {
	zeros, one := make([]byte, n), make([]byte, n)
	flipBit(bit)(one)
	return crc32.ChecksumIEEE(zeros) ^ crc32.ChecksumIEEE(one)
}

// exchangeAllRequests has the device send requests of every supported kind but FLUSH, those with a
// payload of one and of several packets and with 0 to 3 pad bytes, and answers them.
func exchangeAllRequests(c *Conn) {
	c.RequireICRCFields()
	ops := []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm}
	if c.Caps.Has(verbs.CapSendInv) {
		ops = append(ops, verbs.OpSendInv)
	}
	wrs := c.paddedRequests(ops...)
	psn := 0
	for i, wr := range wrs {
		wr.WRID, wr.Flags = uint64(1000+i), verbs.SendSignaled
		c.PostSend(c.QP, wr)
		n := ib.Packets(int(wr.SGL[0].Length), MTU)
		c.nextPackets(n)
		psn += n
		c.completeWith(c.peerAck(psn-1, uint32(i+1)), wr.WRID)
	}
	c.request(psn, c.ReadWR(1, 8))
	c.completeWith(ib.ReadResponseOnly(c.DevicePSN(psn), uint32(len(wrs)+1), Data(8)), 1)
	msn := uint32(len(wrs) + 1)
	for _, op := range []struct {
		code  verbs.WROpcode
		needs verbs.Caps
	}{
		{verbs.OpAtomicCmpAndSwp, verbs.CapAtomics},
		{verbs.OpAtomicFetchAdd, verbs.CapAtomics},
		{verbs.OpAtomicWrite, verbs.CapAtomicWrite},
	} {
		if !c.Caps.Has(op.needs) {
			continue
		}
		psn, msn = psn+1, msn+1
		wr, response := c.fetchAddWR(1), ib.AtomicAck(c.DevicePSN(psn), msn, 7)
		wr.Opcode, wr.Atomic = op.code, verbs.Atomic{CompareAdd: 5, Swap: 6}
		if op.code == verbs.OpAtomicWrite {
			response = ib.ReadResponseOnly(c.DevicePSN(psn), msn, nil)
		}
		c.PostSend(c.QP, wr)
		c.nextPackets(1)
		c.completeWith(response, 1)
	}
}

// paddedRequests returns requests with these opcodes, of one and of several packets, with 0 to 3
// pad bytes.
func (c *Conn) paddedRequests(ops ...verbs.WROpcode) (wrs []verbs.SendWR) {
	for n := range 4 {
		for _, size := range []int{n, 2048 + n} {
			for _, op := range ops {
				wrs = append(wrs, verbs.SendWR{Opcode: op, SGL: c.LocalMem.SGL(0, size), Imm: 0x1234, Remote: PeerMemory, InvalidateRKey: 0x77})
			}
		}
	}
	return wrs
}

// exchangeAllResponses has the device send responses of every kind, READ responses with 0 to 3 pad
// bytes, on a connection with one receive. The last response is a fatal NAK.
func exchangeAllResponses(c *Conn) {
	c.RequireICRCFields()
	c.exchange(c.peerSend(0, 8), c.deviceAck(0, ib.AnyMSN))
	psn := 1
	for n := range 4 {
		c.expectRead(psn, c.RETH(0, n), c.TargetMem.Buf[:n])
		c.expectRead(psn+1, c.RETH(0, 2048+n), c.TargetMem.Buf[:2048+n])
		psn += 1 + ib.Packets(2048+n, MTU)
	}
	if c.Caps.Has(verbs.CapAtomics) {
		c.expectOpExecuted(psn, addOp, c.RETH(0, 8))
		c.expectOpExecuted(psn+1, swapOp, c.RETH(0, 8))
		psn += 2
	}
	c.exchange(c.peerWrite(psn+1, 0), c.deviceNak(psn, ib.NakSequence, ib.AnyMSN))
	c.exchange(c.peerSend(psn, 8), ib.RNR(c.PeerPSN(psn), c.Attr.MinRNRTimer, ib.AnyMSN))
	c.exchange(c.outOfBoundsWrite(psn), ib.Op(ib.OpAcknowledge).WithPSN(c.PeerPSN(psn)))
}

// inFlight returns a function that modifies a packet after its ICRC was computed.
func inFlight(modify func(*ib.Packet)) func(ib.Packet) ib.Packet {
	return func(p ib.Packet) ib.Packet { return p.InFlight(modify) }
}

// bthOffset returns the offset of the BTH in an IP packet.
func (c *Conn) bthOffset() int {
	if c.deviceAddr.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// flipBit returns a function that flips a bit of an IP packet. Bit 0 is the most
// significant bit of the first byte.
func flipBit(bit int) func([]byte) {
	return func(ip []byte) { ip[bit/8] ^= 0x80 >> (bit % 8) }
}
