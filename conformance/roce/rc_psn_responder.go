package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// halfPSNs is half of the number of PSNs. This number of PSNs before the expected one are
// duplicates; the PSNs after it follow a gap.
const halfPSNs = 1 << 23

var psnCases = overRC.Cases([]conformance.Case{{
	ID: "rc/psn/gap-naked-with-the-expected-psn", Cite: ibta("error class B", "rc/psn/5", "rc/psn/11"),
	Title:   "A request after a gap is answered by a NAK with the expected PSN, and the missing request is accepted then",
	Sends:   "a SEND, then a SEND, a WRITE or a READ two PSNs further, then the one that was left out",
	Expects: "a NAK for a sequence error with the PSN that was left out, then an ACK for that",
	Defects: []string{"AckPSNOff"}, Run: onEachConn(Setup{Receives: 4}, []ib.Opcode{
		ib.OpSendOnly, ib.OpWriteOnly, ib.OpReadRequest,
	}, func(c *Conn, early ib.Opcode) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(8)))
		c.ExpectRecv(1, 8)
		c.Drain(sentSoFar) // the device may acknowledge a request without AckReq
		c.exchangeIgnoringCNPs(packetOf(c, early, 3), c.deviceNak(1, ib.NakSequence, ib.AnyMSN))
		c.exchangeIgnoringCNPs(c.peerSend(1, 8), c.deviceAck(1, ib.AnyMSN))
		c.ExpectRecv(2, 8)
	}),
}, {
	ID: "rc/psn/gap-naked-once", Cite: ibta("error class B", "rc/psn/6"),
	Title:   "A gap in the PSNs is answered by one NAK, however many packets follow it",
	Sends:   "a SEND, then three more after a gap",
	Expects: "an ACK, then one NAK for a sequence error with the PSN of the gap, and nothing else",
	Defects: []string{"NAKStorm"}, Run: onRC(func(c *Conn) {
		c.exchangeIgnoringCNPs(c.peerSend(0, 8), c.deviceAck(0, ib.AnyMSN))
		for i := 2; i < 5; i++ {
			c.Send(c.peerSend(i, 8))
		}
		c.expectIgnoringCNPs(c.deviceNak(1, ib.NakSequence, ib.AnyMSN))
		c.expectSilenceIgnoringCNPs()
	}),
}, {
	ID: "rc/psn/next-gap-naked-again", Cite: ibta("error class B", "rc/psn/7"),
	Title:   "After a gap has been filled, the next gap is answered by another NAK",
	Sends:   "before each of three SENDs, and before each packet of a WRITE and a SEND of four packets: a SEND after a gap, every second one without AckReq",
	Expects: "each time a NAK for a sequence error with the expected PSN, and an ACK of the packet that was missing",
	Defects: []string{"NAKOnlyOnce", "NAKOncePerMessage", "GapNAKNeedsAckReq"}, Run: onConn(Setup{Receives: 4, recvLen: 4 * MTU}, func(c *Conn) {
		requests := []ib.Packet{c.peerSend(0, 8), c.peerSend(1, 8), c.peerSend(2, 8)}
		requests = append(requests, ib.Write(c.PeerPSN(3), c.RETH(0, 0), Data(4*MTU), MTU)...)
		requests = append(requests, ib.Send(c.PeerPSN(7), Data(4*MTU), MTU)...)
		for i, missing := range requests {
			behind := c.peerSend(i+6, 8)
			behind.BTH.AckReq = new(i%2 == 0)
			c.exchangeIgnoringCNPs(behind, c.deviceNak(i, ib.NakSequence, ib.AnyMSN))
			c.exchangeIgnoringCNPs(missing.AckReq(), c.deviceAck(i, ib.AnyMSN))
		}
	}),
}, {
	ID: "rc/psn/packets-behind-a-gap-leave-no-trace", Cite: ibta("error class B", "rc/psn/8"),
	Title:   "Requests after a gap are neither placed nor delivered",
	Sends:   "a WRITE, a SEND and a WRITE with immediate after a gap, then the SEND that was missing",
	Expects: "a NAK, memory unchanged and no completion; then the first receive for the SEND that was missing",
	Defects: []string{"EarlyExecution"}, Run: onRC(func(c *Conn) {
		c.Send(
			c.peerWrite(1, 64),
			c.peerSend(2, 32),
			ib.WriteOnlyImm(c.PeerPSN(3), c.RETH(64, 64), 7, Data(64)).AckReq(),
		)
		c.expectIgnoringCNPs(c.deviceNak(0, ib.NakSequence, ib.AnyMSN))
		c.expectSilenceIgnoringCNPs()
		c.ExpectNoCompletion()
		c.ExpectUntouched(c.TargetMem, c.LocalMem)
		c.exchangeIgnoringCNPs(c.peerSend(0, 8), c.deviceAck(0, ib.AnyMSN))
		c.ExpectRecv(1, 8)
	}),
}, {
	ID: "rc/psn/responder-passes-the-wrap", Cite: ibta("", "rc/psn/3"),
	Title:   "The expected PSN wraps from 0xFFFFFF to 0, and duplicates and gaps are detected across the wrap",
	Sends:   "SENDs from PSN 0xFFFFFE to 1, the second of them again, then one after a gap",
	Expects: "an ACK for each and one for the duplicate, which is not delivered again, and a NAK for a sequence error with PSN 2",
	Defects: []string{"PSNUnsigned"}, Run: onConn(Setup{Receives: 6, Modify: func(a *verbs.QPAttr) { a.RQPSN = 0xfffffe }}, func(c *Conn) {
		for i := range 4 {
			c.exchangeIgnoringCNPs(c.peerSend(i, 8), c.deviceAck(i, ib.AnyMSN))
			c.ExpectRecv(uint64(i+1), 8)
		}
		c.exchangeIgnoringCNPs(c.peerSend(1, 8), ib.Ack(1, ib.AnyMSN))
		c.exchangeIgnoringCNPs(c.peerSend(5, 8), ib.Nak(2, ib.NakSequence, ib.AnyMSN))
		c.ExpectNoCompletion()
	}),
}, {
	ID: "rc/psn/half-the-space-back-is-duplicate", Cite: ibta("", "rc/psn/4"),
	Title:   "A PSN up to 2^23 before the expected one is a duplicate",
	Sends:   "a SEND, then SENDs 1, 2^22, 2^23 - 1 and 2^23 before the expected PSN",
	Expects: "an ACK for each, and one completion",
	Defects: []string{"PSNUnsigned"}, Run: onRC(func(c *Conn) {
		c.exchangeIgnoringCNPs(c.peerSend(0, 8), c.deviceAck(0, ib.AnyMSN))
		for _, back := range []int{1, halfPSNs / 2, halfPSNs - 1, halfPSNs} {
			c.exchangeIgnoringCNPs(c.peerSend(1-back, 8), ib.Ack(ib.AnyPSN, ib.AnyMSN))
		}
		c.ExpectRecv(1, 8)
		c.ExpectNoCompletion()
	}),
}, {
	ID: "rc/psn/half-the-space-ahead-is-early", Cite: ibta("", "rc/psn/4"),
	Title:   "A PSN up to 2^23 - 1 after the expected one is after a gap",
	Sends:   "SENDs 1, 2^22 and 2^23 - 1 ahead of the expected PSN, each followed by the one that is expected",
	Expects: "a NAK for a sequence error with the expected PSN, and an ACK, each time",
	Defects: []string{"PSNHalvesUneven"}, Run: onRC(func(c *Conn) {
		for i, ahead := range []int{1, halfPSNs / 2, halfPSNs - 1} {
			c.exchangeIgnoringCNPs(c.peerSend(i+ahead, 8), c.deviceNak(i, ib.NakSequence, ib.AnyMSN))
			c.exchangeIgnoringCNPs(c.peerSend(i, 8), c.deviceAck(i, ib.AnyMSN))
		}
	}),
}, {
	ID: "rc/psn/first-expected-is-rq-psn", Cite: ibta("11.2.4.2", "rc/psn/16"),
	Title:   "The first PSN that a queue pair expects is rq_psn",
	Sends:   "SENDs to queue pairs with several values of rq_psn: one PSN further first, then with that PSN",
	Expects: "a NAK for a sequence error with rq_psn, then an ACK with it",
	Defects: []string{"PSNStartsAtZero"}, Run: OnPort(func(p *Port) {
		for _, first := range firstPSNs(p) {
			c := p.connect(Setup{Receives: 2, Modify: func(a *verbs.QPAttr) { a.RQPSN = first }})
			c.exchangeIgnoringCNPs(c.peerSend(1, 8), c.deviceNak(0, ib.NakSequence, ib.AnyMSN))
			c.exchangeIgnoringCNPs(c.peerSend(0, 8), c.deviceAck(0, ib.AnyMSN))
		}
	}),
}, {
	ID: "rc/psn/fatal-nak-points-at-the-refused-packet", Cite: ibta("9.7.5", "rc/psn/11"),
	Title:   "A fatal NAK has the PSN of the refused request",
	Sends:   "a SEND and a WRITE with an invalid key; on another connection WRITE_FIRST, WRITE_MIDDLE and SEND_ONLY",
	Expects: "a NAK with the PSN of the WRITE, and one with that of the SEND_ONLY",
	Defects: []string{"AckPSNOff"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 2})
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(8)))
		c.ExpectRecv(1, 8)
		c.Drain(sentSoFar)
		c.exchange(writeOp.packet(c.PeerPSN(1), c.unknownKeyRETH(8)), anyNak(c.PeerPSN(1), ib.AnyMSN))

		c = p.connect(Setup{Receives: 2})
		c.Send(ib.WriteFirst(c.PeerPSN(0), c.RETH(0, 2500), Data(MTU)), ib.New(ib.OpWriteMiddle, c.PeerPSN(1), Data(MTU)))
		c.Drain(sentSoFar)
		c.exchange(c.peerSend(2, 8), anyNak(c.PeerPSN(2), ib.AnyMSN))
	}),
}, {
	ID: "rc/psn/nak-of-a-read-points-at-the-missing-response", Cite: ibta("9.7.5", "rc/psn/11"),
	Title:   "The NAK of a READ has the PSN of the first response that was not sent",
	Sends:   "a READ of 3 responses and one with an invalid key; on another connection a READ of which the second half is out of bounds",
	Expects: "a NAK with the PSN after the last response",
	Defects: []string{"AckPSNOff"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{})
		c.Send(c.peerRead(0, 2500).AckReq())
		c.nextPackets(3)
		c.exchange(ib.ReadRequest(c.PeerPSN(3), c.unknownKeyRETH(2500)).AckReq(), anyNak(c.PeerPSN(3), ib.AnyMSN))

		// A device that checks the whole range first sends no response; one that
		// checks each packet sends the responses that it can.
		c = p.connect(Setup{})
		mtu := MTU
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(memLen-2*mtu, 4*mtu)).AckReq())
		given, refusal := 0, c.expect(ib.Packet{})
		for refusal.Opcode() == ib.OpReadResponseFirst || refusal.Opcode() == ib.OpReadResponseMiddle {
			given, refusal = given+1, c.expect(ib.Packet{})
		}
		c.checkPacket(anyNak(c.PeerPSN(given), ib.AnyMSN), refusal)
	}),
}, {
	ID: "rc/psn/duplicate-send-delivered-once", Cite: ibta("C9-105", "rc/psn/9"),
	Title:   "A duplicate SEND is delivered once",
	Sends:   "a SEND, the same packet again, and another SEND",
	Expects: "one completion for the first, and the next receive for the other",
	Defects: []string{"DuplicatesExecuted"}, Run: onRC(func(c *Conn) {
		send := c.peerSend(0, 16)
		c.exchange(send, c.deviceAck(0, ib.AnyMSN))
		c.Send(send)
		c.Sync()
		c.ExpectRecv(1, 16)
		c.ExpectBytes(c.LocalMem, 0, Data(16))
		c.ExpectNoCompletion()
		c.Send(c.peerSend(1, 8))
		c.ExpectRecv(2, 8)
	}),
}, {
	ID: "rc/psn/duplicate-with-immediate-delivered-once", Cite: ibta("C9-105", "rc/psn/9"),
	Title:   "A message with immediate data is delivered once if it, or its last packet, is duplicated",
	Sends:   "SENDs and WRITEs with immediate data, of one packet and of two; the last packet of each again, and all of it again; another SEND",
	Expects: "an ACK for each duplicate, one completion for each message, and the next receive for the other",
	Defects: []string{"DuplicateImmReceives"}, Run: onEachConn(Setup{Receives: 2, recvLen: 2048}, []ib.Opcode{ib.OpSendOnlyImm, ib.OpWriteOnlyImm, ib.OpSendLastImm, ib.OpWriteLastImm}, func(c *Conn, op ib.Opcode) {
		var all []ib.Packet
		switch op {
		case ib.OpSendOnlyImm:
			all = []ib.Packet{ib.SendOnlyImm(c.PeerPSN(0), 7, Data(16))}
		case ib.OpWriteOnlyImm:
			all = []ib.Packet{ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 16), 7, Data(16))}
		case ib.OpSendLastImm:
			all = []ib.Packet{ib.SendFirst(c.PeerPSN(0), Data(MTU)), ib.New(ib.OpSendLastImm, c.PeerPSN(1), Data(16)).WithImm(7)}
		case ib.OpWriteLastImm:
			all = []ib.Packet{ib.WriteFirst(c.PeerPSN(0), c.RETH(0, MTU+16), Data(MTU)), ib.New(ib.OpWriteLastImm, c.PeerPSN(1), Data(16)).WithImm(7)}
		}
		last := len(all) - 1
		all[last] = all[last].AckReq()
		c.Send(all...)
		c.expectAck(c.PeerPSN(last))
		for _, again := range [][]ib.Packet{all[last:], all} {
			c.Send(again...)
			c.expectAck(c.PeerPSN(last))
			c.Drain(sentSoFar)
		}
		wc := c.ExpectRecv(1, last*MTU+16)
		c.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == 7, "immediate data 7", "%s", rig.Describe(&wc))
		c.ExpectNoCompletion()
		c.Send(c.peerSend(last+1, 8))
		c.ExpectRecv(2, 8)
	}),
}, {
	ID: "rc/psn/duplicate-write-not-placed-again", Cite: ibta("C9-105", "rc/psn/9"),
	Title:   "A duplicate WRITE does not overwrite later data",
	Sends:   "two WRITEs to the same address, of one packet each and then of three, and a duplicate of the first",
	Expects: "the data of the second in memory",
	Defects: []string{"DuplicatesExecuted"}, Run: onEachConn(Setup{}, []int{64, 2500}, func(c *Conn, n int) {
		first, second := ib.Write(c.PeerPSN(0), c.RETH(0, n), Data(n), MTU), make([]byte, n)
		c.Send(first...)
		c.Send(ib.Write(c.PeerPSN(len(first)), c.RETH(0, n), second, MTU)...)
		c.Sync()
		c.ExpectBytes(c.TargetMem, 0, second)
		c.Send(first...)
		c.Sync()
		c.ExpectBytes(c.TargetMem, 0, second)
		c.ExpectUnchangedOutside(c.TargetMem, 0, n)
	}),
}, {
	ID: "rc/psn/duplicate-acknowledged", Cite: ibta("C9-105", "rc/psn/9", "rc/psn/10"),
	Title:   "A duplicate SEND or WRITE is acknowledged",
	Sends:   "a SEND of one packet and a WRITE of three without AckReq, then each packet again with it",
	Expects: "each time an ACK with the PSN of the last packet executed",
	Defects: []string{"NoAcks"}, Run: onRC(func(c *Conn) {
		all := []ib.Packet{ib.SendOnly(c.PeerPSN(0), Data(16))}
		for _, part := range ib.Write(c.PeerPSN(1), c.RETH(0, 0), Data(2500), MTU) {
			part.BTH.AckReq = nil
			all = append(all, part)
		}
		c.Send(all...)
		c.Drain(sentSoFar) // the device may have acknowledged packets without AckReq
		for _, again := range all {
			c.exchange(again.AckReq(), c.deviceAck(3, ib.AnyMSN))
		}
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/psn/duplicate-ack-never-has-the-psn-of-a-read", Cite: ibta("C9-105", "rc/psn/10"),
	Title:   "The ACK of a duplicate WRITE does not acknowledge a later READ",
	Sends:   "a WRITE, a READ of one response, one of three, and the WRITE again",
	Expects: "an ACK with the PSN of the WRITE, which is that of the last request that is acknowledged so",
	Defects: []string{"DupAckTakesReadPSN"}, Run: onRC(func(c *Conn) {
		write := c.peerWrite(0, 16)
		c.exchange(write, c.deviceAck(0, ib.AnyMSN))
		c.Send(c.peerRead(1, 8).AckReq(), c.peerRead(2, 2500).AckReq())
		c.nextPackets(4)
		c.exchange(write, c.deviceAck(0, ib.AnyMSN))
	}),
}, {
	ID: "rc/psn/duplicate-hides-no-gap", Cite: ibta("error class B", "rc/psn/5"),
	Title:   "A gap is answered by a NAK even if a duplicate arrives while the NAK waits for the responses of a READ",
	Sends:   "a WRITE, CNPs, a READ of 64 responses, a WRITE after a gap, and the first WRITE again",
	Expects: "a NAK for a sequence error with the expected PSN; the ACK of the duplicate may be sent or not",
	Defects: []string{"AckReplacesNAK"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }}, func(c *Conn) {
		c.exchange(c.peerWrite(0, 8), c.deviceAck(0, 1))
		c.throttle()
		c.Send(c.peerRead(1, memLen), c.peerWrite(66, 8), c.peerWrite(0, 8))
		c.Await("a NAK for a sequence error", func(a *Arrival) bool { return a.IsAck(ib.AckNegative) && a.PSN() == c.PeerPSN(65) })
	}),
}, {
	ID: "rc/psn/earlier-duplicate-read-answered-first", Cite: ibta("C9-110", "rc/psn/12"),
	Title:   "A duplicate READ is answered before the remaining responses of a later, longer READ",
	Sends:   "a READ of one response; then a READ of 4096 responses at full speed, and a duplicate of the first: right after it, and after its first response",
	Expects: "the response to the first READ before the last one to the second",
	Defects: []string{"DupReadWaits"}, Run: onRC(func(c *Conn) {
		long := c.Memory(longRead*MTU, allAccess)
		tries, asked := 0, false
		for _, started := range []bool{false, true} {
			for range 3 {
				seen := c.expectDuplicateReadFirst(tries*(longRead+1), long, started)
				tries++
				if asked = asked || seen; seen {
					break
				}
			}
		}
		if !asked {
			rig.BenchCannot("the long READ was answered before the duplicate was sent")
		}
	}),
}})

// firstPSNs returns initial PSNs: edge cases and a random one.
func firstPSNs(p *Port) []uint32 {
	return []uint32{1, 0x7fffff, 0x800000, 0xffffff, p.Rand.Uint32N(1 << 24)}
}

// anyNak matches a NAK with any code.
func anyNak(psn ib.PSN, msn uint32) ib.Packet {
	p := ib.Nak(psn, 0, msn)
	p.AETH.Value = nil
	return p
}

// exchangeIgnoringCNPs sends a packet, and fails the case unless the next packet matches response.
// It skips CNPs, which some devices send with a sequence NAK.
func (c *Conn) exchangeIgnoringCNPs(pkt, response ib.Packet) {
	c.Send(pkt)
	c.expectIgnoringCNPs(response)
}

// expectIgnoringCNPs fails the case unless the next packet that is not a CNP matches want.
func (c *Conn) expectIgnoringCNPs(want ib.Packet) {
	c.checkPacket(c.fromDevice(want), c.expectAfter(isCNP, want.String()))
}

// expectSilenceIgnoringCNPs fails the case if the device sends anything but CNPs.
func (c *Conn) expectSilenceIgnoringCNPs() {
	for _, pkt := range c.Drain(silencePeriod) {
		c.Check(isCNP(&pkt), "nothing is sent", "%v", pkt)
	}
}

// longRead is the number of responses to a READ that no device answers at once.
const longRead = 4096

// expectDuplicateReadFirst sends a short READ, a READ of long, which has longRead responses, and a
// duplicate of the short READ. It returns true if the device answers the duplicate before the last
// response to the long READ, and false if too few responses were left for a verdict; else the case
// fails. With afterFirst, the duplicate is sent after the first response to the long READ.
func (c *Conn) expectDuplicateReadFirst(k int, long *rig.Memory, afterFirst bool) bool {
	short := c.peerRead(k, 8).AckReq()
	answer := ib.ReadResponseOnly(c.PeerPSN(k), ib.AnyMSN, c.TargetMem.Buf[:8])
	c.exchange(short, answer)
	c.Send(ib.ReadRequest(c.PeerPSN(k+1), rethFor(long, 0, len(long.Buf))).AckReq())
	if afterFirst {
		c.expect(ib.Response(ib.OpReadResponseFirst, c.PeerPSN(k+1), ib.AnyMSN, nil))
	}
	c.Send(short)
	sent, after := c.Now(), 0 // after counts the responses to the long READ since the duplicate was sent
	for longDone := false; ; {
		p, ok := c.NextPacket(c.ResponseTimeout())
		switch {
		case !ok || longDone && p.PSN() == c.PeerPSN(k):
			c.Check(after < longRead/2, "the response to the duplicate before the last one to the later READ",
				"%d of %d came after the duplicate was sent, and before its response", after, longRead)
			return false
		case p.PSN() == c.PeerPSN(k):
			c.checkPacket(c.fromDevice(answer), p)
			// Discard the other responses to the long READ, which need not be sent.
			for ok && p.PSN() != c.PeerPSN(k+longRead) {
				p, ok = c.NextPacket(c.ResponseTimeout())
			}
			return true
		case p.At > sent:
			after++
		}
		longDone = longDone || p.PSN() == c.PeerPSN(k+longRead)
	}
}

// throttle sends CNPs, so that a device with congestion control answers long READs slowly.
func (c *Conn) throttle() { c.sendCNPs(ib.CNP(), 20) }
