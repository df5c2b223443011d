package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// [PacketChecker] checks the ICRC of every packet in all cases. These cases make the device send
// packets of all kinds.
var icrcCases = mostlyRC.Cases([]conformance.Case{{
	ID: "icrc/sent/requests-of-every-opcode-and-pad", Cite: annexA17("CA17-22", "roce/icrc/1"), Setup: ipv4,
	Run: onConn(Setup{}, exchangeAllRequests),
}, {
	ID:   "icrc/sent/answers-of-every-kind",
	Cite: annexA17("CA17-22", "roce/icrc/1"), Needs: verbs.CapAtomics, Setup: ipv4,
	Run: onConn(Setup{Receives: 1}, exchangeAllResponses),
}, {
	ID: "icrc/sent/ipv6-packets", Cite: annexA17("CA17-22", "roce/icrc/1"), Needs: verbs.CapAtomics, Setup: ipv6,
	Run: onConn(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) {
		a.AH.GRH.TrafficClass, a.AH.GRH.FlowLabel, a.AH.GRH.HopLimit = 0x28, 0xabcde, 9
	}}, func(c *Conn) {
		exchangeAllRequests(c)
		exchangeAllResponses(c)
	}),
}, {
	ID:   "icrc/sent/datagrams-and-mads",
	Cite: annexA17("CA17-22", "roce/icrc/1"), Needs: verbs.CapUD | verbs.CapCM, Labels: []string{"service:ud", "service:cm"},
	Run: OnPort(func(p *Port) {
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
	}),
}, {
	ID: "icrc/sent/flush-counts-each-byte-once", Cite: annexA17("CA17-22", "roce/icrc/1"), Needs: verbs.CapFlush,
	Run: onConn(Setup{access: allAccess | verbs.AccessFlushGlobal}, func(c *Conn) {
		c.RequireICRCFields()
		c.PostSend(c.QP, verbs.SendWR{
			WRID: 1, Opcode: verbs.OpFlush, Flags: verbs.SendSignaled, Remote: verbs.Remote{Addr: 0x1000, RKey: 0x55},
			Flush: verbs.Flush{Length: 64, Type: verbs.FlushGlobal},
		})
		c.expect(ib.Flush(c.DevicePSN(0), ib.FlushGlobal, ib.FlushRange, ib.At(0x1000, 0x55, 64)))
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, nil), 1)
		c.Send(ib.Flush(c.PeerPSN(0), ib.FlushGlobal, ib.FlushRange, c.RETH(0, 64)))
		c.expect(ib.ReadResponseOnly(c.PeerPSN(0), 1, []byte{}))
	}),
}, {
	ID: "icrc/received/wrong-icrc-changes-nothing", Cite: annexA17("CA17-24", "roce/icrc/2"),
	Run: onRC(func(c *Conn) {
		c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().BadICRC())
		c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().InFlight(func(p *ib.Packet) { p.Payload[5] ^= 0x10 }))
		c.expectDropped(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).AckReq().BadICRC())
		c.expectDropped(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 16)).BadICRC())
		c.expectDropped(ib.SendOnly(c.PeerPSN(3), Data(16)).AckReq().BadICRC()) // its PSN would be after a gap
		c.PostSend(c.QP, c.SendWR(100, 8))
		c.expect(ib.SendOnly(c.DevicePSN(0), nil))
		c.expectDropped(ib.Ack(c.DevicePSN(0), 1).BadICRC())
		c.expectAccepted(0)
	}),
}, {
	ID: "icrc/order/byte-reversed-icrc-dropped", Cite: ibta("7.8.1", "roce/icrc/6"),
	Run: onRC(func(c *Conn) {
		for n := range 4 {
			c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16+n)).AckReq().SwappedICRC())
		}
		c.expectAccepted(0)
	}),
}})

// exchangeAllRequests has the device send requests of every kind that it supports, and
// answers them.
func exchangeAllRequests(c *Conn) {
	c.RequireICRCFields()
	at := verbs.Remote{Addr: 0x1000, RKey: 0x55}
	var wrs []verbs.SendWR
	for n := range 4 {
		for _, size := range []int{n, 2048 + n} {
			wrs = append(wrs,
				verbs.SendWR{Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, size)},
				verbs.SendWR{Opcode: verbs.OpSendImm, SGL: c.LocalMem.SGL(0, size), Imm: 0x1234},
				verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.LocalMem.SGL(0, size), Remote: at},
				verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: c.LocalMem.SGL(0, size), Remote: at, Imm: 0x1234})
			if c.Caps.Has(verbs.CapSendInv) {
				wrs = append(wrs, verbs.SendWR{Opcode: verbs.OpSendInv, SGL: c.LocalMem.SGL(0, size), InvalidateRKey: 0x77})
			}
		}
	}
	psn := 0
	for i, wr := range wrs {
		wr.WRID, wr.Flags = uint64(1000+i), verbs.SendSignaled
		c.PostSend(c.QP, wr)
		n := ib.Packets(int(wr.SGL[0].Length), MTU)
		c.nextPackets(n)
		psn += n
		c.completeWith(ib.Ack(c.DevicePSN(psn-1), uint32(i+1)), wr.WRID)
	}
	c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.LocalMem.SGL(0, 8), Remote: at})
	c.expect(ib.ReadRequest(c.DevicePSN(psn), ib.At(at.Addr, at.RKey, 8)))
	c.completeWith(ib.ReadResponseOnly(c.DevicePSN(psn), uint32(len(wrs)+1), Data(8)), 1)
	if !c.Caps.Has(verbs.CapAtomics) {
		return
	}
	for i, op := range []verbs.WROpcode{verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd} {
		c.PostSend(c.QP, verbs.SendWR{
			WRID: uint64(i), Opcode: op, Flags: verbs.SendSignaled, SGL: c.LocalMem.SGL(0, 8), Remote: at,
			Atomic: verbs.Atomic{CompareAdd: 5, Swap: 6},
		})
		c.nextPackets(1)
		c.completeWith(ib.AtomicAck(c.DevicePSN(psn+1+i), uint32(len(wrs)+2+i), 7), uint64(i))
	}
}

// exchangeAllResponses has the device send responses of every kind, on a connection with
// one receive. The last response is a fatal NAK.
func exchangeAllResponses(c *Conn) {
	c.RequireICRCFields()
	const anyMSN = ib.AnyMSN
	c.exchange(ib.SendOnly(c.PeerPSN(0), Data(8)).AckReq(), ib.Ack(c.PeerPSN(0), anyMSN))
	psn := 1
	for n := range 4 {
		c.Send(ib.ReadRequest(c.PeerPSN(psn), c.RETH(0, n)))
		c.expect(ib.ReadResponseOnly(c.PeerPSN(psn), anyMSN, c.TargetMem.Buf[:n]))
		c.Send(ib.ReadRequest(c.PeerPSN(psn+1), c.RETH(0, 2048+n)))
		answers := ib.ReadResponses(c.PeerPSN(psn+1), anyMSN, c.TargetMem.Buf[:2048+n], MTU)
		for _, pkt := range answers {
			c.expect(pkt)
		}
		psn += 1 + len(answers)
	}
	if c.Caps.Has(verbs.CapAtomics) {
		c.exchange(ib.FetchAdd(c.PeerPSN(psn), c.RETH(0, 8), 1), ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(psn)))
		c.Send(ib.CompareSwap(c.PeerPSN(psn+1), c.RETH(0, 8), 1, 2))
		c.expect(ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(psn + 1)))
		psn += 2
	}
	c.Send(ib.WriteOnly(c.PeerPSN(psn+1), c.RETH(0, 0), nil).AckReq())
	c.expect(ib.Nak(c.PeerPSN(psn), ib.NakSequence, anyMSN))
	c.exchange(ib.SendOnly(c.PeerPSN(psn), Data(8)).AckReq(), ib.RNR(c.PeerPSN(psn), c.Attr.MinRNRTimer, anyMSN))
	c.Send(ib.WriteOnly(c.PeerPSN(psn), c.RETH(0, 4).Skip(-1<<40), Data(4)).AckReq())
	c.expectPacket(ib.Op(ib.OpAcknowledge).WithPSN(c.PeerPSN(psn)))
}
