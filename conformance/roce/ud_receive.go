package roce

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var udCases = conformance.Group{DefaultLabels: labelUD}.Cases(slices.Concat([]conformance.Case{
	udAreaCase(4, "ud/area/ipv4-header-at-offset-20", "The receive of a datagram over IPv4 has the IPv4 header at byte 20, and the payload at byte 40"),
	udAreaCase(6, "ud/area/ipv6-header-at-offset-0", "The receive of a datagram over IPv6 has the IPv6 header at byte 0, and the payload at byte 40"),
}, []conformance.Case{{
	ID:   "ud/area/traffic-class-arrives",
	Cite: annexA17("A17.9.2", "ud/15"), Level: conformance.Should, Needs: verbs.CapUD,
	Title:   "The GRH area of a receive has the traffic class of the datagram",
	Sends:   "datagrams with traffic classes 0, 0x68 and 0xfc",
	Expects: "these in the headers of the receives",
	Defects: []string{"NoTClassInArea"}, Run: onUD(3, func(d *udPort) {
		// The ECN bits are 0: the network may change them, and the device answers a
		// CE mark.
		for i, tclass := range []uint8{0, 0x68, 0xfc} {
			d.SendPacket(d.datagram(Data(16)).WithTClass(tclass))
			d.ExpectRecv(uint64(i+1), ib.GRHLen+16)
			d.expectHeader(i, packet.IP{TClass: &tclass})
		}
	}),
}, {
	ID: "ud/wc/names-the-sending-qp", Cite: ibta("", "ud/9"), Needs: verbs.CapUD,
	Title:   "The completion of a datagram has the source QPN, the local QPN and the GRH flag",
	Sends:   "datagrams from several queue pairs",
	Expects: "their numbers as the source in the completions, and the flag of the header area",
	Defects: []string{"SparseCompletions"}, Run: onUD(3, func(d *udPort) {
		for i, from := range []uint32{udPeerQPN, 1, 0xfffffe} {
			d.SendPacket(d.datagram(Data(16)).WithDETH(udQKey, from))
			wc := d.ExpectRecv(uint64(i+1), ib.GRHLen+16)
			d.Check(uint32(wc.SrcQP) == from, fmt.Sprintf("source queue pair %#x", from), "%#x", uint32(wc.SrcQP))
			d.Check(wc.Flags&verbs.WCWithGRH != 0, "the GRH flag", "flags %#x", uint32(wc.Flags))
			d.Check(wc.QPN == d.QP.QPN(), fmt.Sprintf("queue pair %#x", uint32(d.QP.QPN())), "%#x", uint32(wc.QPN))
		}
	}),
}, {
	ID: "ud/wc/has-the-immediate", Cite: ibta("", "ud/9"), Needs: verbs.CapUD,
	Title:   "Immediate data of datagrams keep their byte order in both directions",
	Sends:   "datagrams with and without immediate data",
	Expects: "the immediate data in the completion of the datagram that has them; in the device's datagram, the posted number in network byte order",
	Defects: []string{"ByteOrderWrong"}, Run: onUD(2, func(d *udPort) {
		const imm = 0x01020304
		d.SendPacket(ib.Datagram(0, udQKey, udPeerQPN, Data(8)).WithOpcode(ib.OpUDSendOnlyImm).WithImm(imm).To(uint32(d.QP.QPN())))
		wc := d.ExpectRecv(1, ib.GRHLen+8)
		d.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == imm, fmt.Sprintf("immediate %#x", imm), "flags %#x, immediate %#x", uint32(wc.Flags), wc.Imm)
		d.SendPacket(d.datagram(Data(8)))
		wc = d.ExpectRecv(2, ib.GRHLen+8)
		d.Check(wc.Flags&verbs.WCWithImm == 0, "no immediate data", "flags %#x", uint32(wc.Flags))
		d.PostSend(d.QP, d.sendTo(d.newAH(d.PD), verbs.SendWR{WRID: 9, Opcode: verbs.OpSendImm, Imm: imm, SGL: d.LocalMem.SGL(0, 8)}))
		d.expectPacket(ib.Datagram(ib.AnyPSN, udQKey, uint32(d.QP.QPN()), d.LocalMem.Buf[:8]).WithOpcode(ib.OpUDSendOnlyImm).WithImm(imm).To(udPeerQPN))
	}),
}, {
	ID: "ud/psn/means-nothing", Cite: ibta("", "ud/8"), Needs: verbs.CapUD,
	Title:   "Datagrams are delivered whatever their PSNs are",
	Sends:   "datagrams of one sender with PSNs that repeat, go back and jump",
	Expects: "all of them, in order",
	Defects: []string{"UDPSNChecked"}, Run: onUD(7, func(d *udPort) {
		for i, psn := range []ib.PSN{5, 5, 3, 0x800003, 0xffffff, 0, 5} {
			d.SendPacket(d.datagram(Data(10 + i)).WithPSN(psn))
			d.ExpectRecv(uint64(i+1), ib.GRHLen+10+i)
		}
	}),
}, {
	ID: "ud/qkey/high-bit-stands-for-the-own-key", Cite: ibta("C10-15", "ud/3"), Needs: verbs.CapUD,
	Title:   "A request whose Q_Key has the highest bit set is sent with the Q_Key of the queue pair",
	Sends:   "nothing",
	Expects: "the queue pair's Q_Key in datagrams posted with Q_Keys 0x80000005 and 0xffffffff, and the posted Q_Key without the bit",
	Defects: []string{"PrivilegedQKey"}, Run: onUD(0, func(d *udPort) {
		ah := d.newAH(d.PD)
		for _, key := range []struct{ posted, sent uint32 }{{0x80000005, udQKey}, {0xffffffff, udQKey}, {0x7654321, 0x7654321}} {
			wr := d.sendTo(ah, verbs.SendWR{WRID: 1, SGL: d.LocalMem.SGL(0, 8)})
			wr.UD.QKey = key.posted
			d.PostSend(d.QP, wr)
			d.expectPacket(ib.Datagram(ib.AnyPSN, key.sent, uint32(d.QP.QPN()), nil))
		}
	}),
}, {
	ID: "ud/qkey/mads-are-sent-with-the-well-known-key", Cite: ibta("", "ud/4"), Needs: verbs.CapCM, Labels: labelCM,
	Title:   "MADs are sent from QP 1 to QP 1 with Q_Key 0x80010000",
	Sends:   "a REQ for a service without a listener",
	Expects: "an answer with that Q_Key, from QP 1 to QP 1",
	Defects: []string{"GSIQKeyZero"}, Run: OnPort(func(p *Port) {
		p.SendPacket(ib.CM(0x77, p.cmRequest(cmClosedPort, 0x4711)))
		p.expectPacket(ib.Op(ib.OpUDSendOnly).WithDETH(ib.GSIQKey, ib.GSIQPN).To(ib.GSIQPN))
	}),
}}))

// udAreaCase returns the case about the GRH area of receives for an IP version.
func udAreaCase(family int, id, title string) conformance.Case {
	return conformance.Case{
		ID:    id,
		Title: title,
		Cite:  annexA17("A17.4.5.1, A17.4.5.2", "ud/1", "ud/10"), Needs: verbs.CapUD,
		Setup: conformance.Setup{Family: family}, Labels: labelUD, Defects: []string{"AreaMissing"},
		Sends:   "datagrams of 4, 0 and 1000 bytes with hop limit 37",
		Expects: "completions of 40 bytes more each; an area with the header that was sent: version, addresses, length, hop limit; and the payload after it",
		Run: onUD(3, func(d *udPort) {
			for i, n := range []int{4, 0, 1000} {
				pkt := d.datagram(Data(n)).Via(d.Peer, d.deviceAddr).WithHopLimit(37)
				d.SendPacket(pkt)
				d.ExpectRecv(uint64(i+1), ib.GRHLen+n)
				d.ExpectBytes(d.LocalMem, i*udRecvLen+ib.GRHLen, Data(n))
				sent, _, err := packet.ParseIPHeader(pkt.Build())
				d.Must("a packet that can be parsed", err)
				d.expectHeader(i, packet.IP{
					Src: sent.Src, Dst: sent.Dst, Version: sent.Version, Length: sent.Length, Protocol: sent.Protocol, HopLimit: sent.HopLimit,
				})
			}
		}),
	}
}

// udPort is a UD queue pair of the device in RTS, with a scripted peer. Its Conn has no
// connection.
type udPort struct{ *Conn }

const (
	udQKey    = 0x11223344 // of both ends
	udPeerQPN = 0x0b0e0e
	udRecvLen = 1200 // of each receive
)

// onUD makes the body of a case from a function that uses a UD queue pair with this many
// receives. They have IDs from 1 on and lie one after the other in LocalMem.
func onUD(receives int, body func(*udPort)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.newUDPort(receives, nil)) })
}

// newUDPort makes a UD queue pair, on a shared receive queue unless srq is nil.
func (p *Port) newUDPort(receives int, srq verbs.SRQ) *udPort {
	return &udPort{p.connect(Setup{
		qpType: verbs.QPTypeUD, srq: srq, Receives: receives, recvLen: udRecvLen, access: verbs.AccessLocalWrite,
		caps: verbs.QPCaps{MaxSendWR: 32, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2},
	})}
}

// datagram returns a datagram to the queue pair.
func (d *udPort) datagram(payload []byte) ib.Packet {
	return ib.Datagram(0, udQKey, udPeerQPN, payload).To(uint32(d.QP.QPN()))
}

// newAH returns an address handle for the peer.
func (d *udPort) newAH(pd verbs.PD) verbs.AH {
	ah, err := pd.CreateAH(d.peerAttr(d.Peer).AH)
	d.Must("an address handle", err)
	return ah
}

// sendTo addresses a request to the peer's queue pair. The opcode is SEND if it is not
// set.
func (d *udPort) sendTo(ah verbs.AH, wr verbs.SendWR) verbs.SendWR {
	wr.Opcode = cmp.Or(wr.Opcode, verbs.OpSend)
	wr.UD = verbs.UD{AH: ah, QPN: udPeerQPN, QKey: udQKey}
	return wr
}

// post makes the device send a datagram of n bytes to the peer.
func (d *udPort) post(op verbs.WROpcode, n int) {
	d.PostSend(d.QP, d.sendTo(d.newAH(d.PD), verbs.SendWR{WRID: 900, Opcode: op, SGL: d.LocalMem.SGL(4096, n), Imm: 0x1234}))
}

// expectDelivery sends a datagram of n bytes, which must complete the receive with this ID.
func (d *udPort) expectDelivery(n int, id uint64) {
	d.SendPacket(d.datagram(Data(n)))
	d.ExpectRecv(id, ib.GRHLen+n)
}

// expectAccepted fails the case unless a datagram completes the first receive.
func (d *udPort) expectAccepted() {
	d.expectDelivery(16, 1)
	d.ExpectBytes(d.LocalMem, verbs.GRHLen, Data(16))
}

// expectHeader fails the case unless the IP header in the GRH area of a receive matches
// want.
func (d *udPort) expectHeader(receive int, want packet.IP) {
	family := 6
	if d.deviceAddr.Is4() {
		family = 4
	}
	got, err := ib.ParseGRH(d.LocalMem.Buf[receive*udRecvLen:], family)
	d.Must("the IP header of the datagram", err)
	var diff packet.Differences
	if want.Diff(&diff, got); len(diff) > 0 {
		d.Fail("a GRH area with "+diff.Want(), "%s", diff.Got())
	}
}
