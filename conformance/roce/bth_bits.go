package roce

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthBitCases = mostlyRC.Cases([]conformance.Case{{
	ID: "bth/resv/sent-as-zero", Cite: ibta("", "bth/resv/1"),
	Title:   "Reserved bits of the BTH are sent as 0",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device",
	Expects: "thirteen bits of 0 in every packet",
	Defects: []string{"ReservedBitsSent"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInAllPackets(ib.Packet{}.WithReserved(0, 0))
	}),
}, {
	ID: "bth/resv/ignored-on-receipt", Cite: ibta("", "bth/resv/2"),
	Title:   "Reserved bits of the BTH are ignored on receipt",
	Sends:   "SENDs, and an ACK, with the reserved bits of byte 4, of byte 8, and of both set",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"ReservedBitsChecked"}, Run: onRC(func(c *Conn) {
		for n, bits := range [][2]uint8{{0x3f, 0}, {0, 0x7f}, {0x3f, 0x7f}} {
			c.expectAccepted(n, func(p ib.Packet) ib.Packet { return p.WithReserved(bits[0], bits[1]) })
		}
		c.request(0, c.SendWR(100, 8))
		c.completeWith(c.peerAck(0, 1).WithReserved(0x3f, 0x7f), 100)
	}),
}, {
	ID: "bth/mig/either-value-accepted", Cite: ibta("", "bth/mig/1"),
	Title:   "A connection without an alternate path accepts MigReq 0 and 1",
	Sends:   "SENDs with MigReq 0, 1, 0 and 1, and ACKs with either",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"DropMigReqZero"}, Run: onRC(func(c *Conn) {
		for n := range 4 {
			mig := n%2 == 1
			withMigReq := func(p ib.Packet) ib.Packet { p.BTH.MigReq = &mig; return p }
			c.expectAccepted(n, withMigReq)
			c.request(n, c.SendWR(100, 8))
			c.completeWith(withMigReq(c.peerAck(n, uint32(n+1))), 100)
		}
	}),
}, {
	ID: "bth/se/only-on-the-last-packet-of-a-solicited-send", Cite: ibta("", "bth/se/1"),
	Title:   "SE is set in the last packet of a solicited message, and in no other",
	Sends:   "ACKs for SENDs and a WRITE with immediate data of three packets and of one, solicited and not",
	Expects: "SE on the LAST or ONLY packet of the solicited ones only",
	Defects: []string{"SolicitedEverywhere"}, Run: onConn(Setup{}, func(c *Conn) {
		for _, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWriteImm} {
			for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
				c.expectSE(op, flags, flags != 0)
			}
		}
	}),
}, {
	ID: "bth/se/never-on-a-plain-write", Cite: ibta("", "bth/se/1"),
	Title:   "A WRITE without immediate data and a READ never carry SE, even if they are posted as solicited",
	Sends:   "ACKs for WRITEs of three packets and of one that were posted as solicited",
	Expects: "no packet with SE; the post may be refused",
	Defects: []string{"SolicitedEverywhere"}, Run: onConn(Setup{}, func(c *Conn) {
		wr := c.WriteWR(1, 8)
		wr.Flags = verbs.SendSolicited
		// A device may reject the flag here: it is defined for SENDs and WRITEs with
		// immediate data only.
		if _, err := c.QP.PostSend([]verbs.SendWR{wr}); errors.Is(err, verbs.ErrInvalid) {
			c.expectSilence(silencePeriod)
			return
		}
		c.expect(c.wantWrite(0, 8)[0].NoSE())
		c.Send(c.peerAck(0, 1))
		c.expectSE(verbs.OpRDMAWrite, verbs.SendSolicited, false)
	}),
}, {
	ID: "bth/se/solicited-message-raises-the-event", Cite: ibta("C11-31, C11-32", "bth/se/2"),
	Title:   "A message with SE raises the event of a queue that is armed for solicited completions",
	Sends:   "a SEND with SE, a SEND of two packets with SE on the last, a WRITE with immediate data and SE",
	Expects: "a completion and an event for each",
	Defects: []string{"SolicitedInverted"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 3, recvLen: 2048})
		for i, message := range [][]ib.Packet{
			{c.peerSend(0, 16)},
			{ib.SendFirst(c.PeerPSN(1), Data(1024)), ib.SendLast(c.PeerPSN(2), Data(16)).AckReq()},
			{ib.WriteOnlyImm(c.PeerPSN(3), c.RETH(0, 16), 7, Data(16)).AckReq()},
		} {
			c.armCQ(true)
			last := len(message) - 1
			message[last] = message[last].SE()
			c.Send(message...)
			c.expectCQEvent(events)
			c.ExpectRecv(uint64(i+1), last*1024+16)
		}
	}),
}, {
	ID: "bth/se/unsolicited-message-raises-none", Cite: ibta("C11-31, C11-32", "bth/se/2"),
	Title:   "A message without SE does not raise the event of a queue that is armed for solicited completions",
	Sends:   "a SEND without SE, then one with it",
	Expects: "two completions, one event after the second",
	Defects: []string{"SolicitedInverted"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 2})
		c.armCQ(true)
		c.expectAccepted(0)
		c.Sync()
		c.expectNoCQEvent(events)
		c.expectAccepted(1, ib.Packet.SE)
		c.expectCQEvent(events)
	}),
}, {
	ID: "bth/ackreq/zero-on-answers", Cite: ibta("", "bth/ackreq/1"), Needs: verbs.CapAtomics,
	Title:   "AckReq is 0 in responses",
	Sends:   "requests that are acknowledged, answered and refused, an atomic among them",
	Expects: "AckReq 0 in every answer",
	Defects: []string{"AckReqOnResponses"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.exchange(ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 1).AckReq(), ib.Op(ib.OpAtomicAcknowledge).NoAckReq())
		c.Attr.RQPSN = uint32(c.PeerPSN(1)) // continue after the atomic
		for _, pkt := range c.variedPackets() {
			if info, _ := pkt.Info(); info.Response {
				c.checkPacket(ib.Packet{}.NoAckReq(), pkt)
			}
		}
	}),
}, {
	ID:   "bth/ackreq/zero-on-datagrams",
	Cite: ibta("", "bth/ackreq/2"), Level: conformance.Should, Needs: verbs.CapUD, Labels: labelUD,
	Title:   "AckReq is 0 in datagrams",
	Sends:   "nothing",
	Expects: "AckReq 0 in datagrams with and without immediate data",
	Defects: []string{"UnreliableAckReq"}, Run: onUD(0, func(d *udPort) {
		d.post(verbs.OpSend, 16)
		d.expectPacket(ib.Op(ib.OpUDSendOnly).NoAckReq())
		d.post(verbs.OpSendImm, 16)
		d.expectPacket(ib.Op(ib.OpUDSendOnlyImm).NoAckReq())
	}),
}, {
	ID:   "bth/ackreq/zero-on-mads",
	Cite: ibta("", "bth/ackreq/2"), Level: conformance.Should, Needs: verbs.CapCM, Labels: labelCM,
	Title:   "AckReq is 0 in MADs of the communication manager",
	Sends:   "a REQ for a service without a listener",
	Expects: "AckReq 0 in the REJ",
	Defects: []string{"GSIAckReq"}, Run: OnPort(func(p *Port) {
		p.SendPacket(ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001)))
		pkt, _ := p.cmExpect(ib.REJ{})
		p.checkPacket(ib.Packet{}.NoAckReq(), pkt)
	}),
}})

// expectSE has the device send messages of three packets and of one, and fails the case
// unless the last packet of each has SE as wanted and no other packet has it.
func (c *Conn) expectSE(op verbs.WROpcode, flags verbs.SendFlags, want bool) {
	for _, n := range []int{2500, 16} {
		wr := c.WriteWR(7, n)
		wr.Opcode, wr.Flags, wr.Imm = op, flags|verbs.SendSignaled, 5
		c.PostSend(c.QP, wr)
		all := c.nextPackets(ib.Packets(n, MTU))
		for i, pkt := range all {
			se := want && i == len(all)-1
			c.Check(pkt.HasSE() == se, fmt.Sprintf("%v with SE %v", pkt.Opcode(), se), "%v", pkt)
		}
		c.completeWith(ib.Ack(all[len(all)-1].PSN(), 1), 7)
	}
}
