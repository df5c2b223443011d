package roce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
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
		// The ECN bits are 0: the network may change them, and the device answers a CE mark.
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
	Sends:   "datagrams with immediate data, also 0, and one without",
	Expects: "the immediate data in the completion of the datagram that has them; in the device's datagram, the posted number in network byte order",
	Defects: []string{"ByteOrderWrong", "UDZeroImmLost"}, Run: onUD(3, func(d *udPort) {
		for i, imm := range []uint32{0x01020304, 0} {
			d.SendPacket(ib.Datagram(0, udQKey, udPeerQPN, Data(8)).WithOpcode(ib.OpUDSendOnlyImm).WithImm(imm).To(uint32(d.QP.QPN())))
			wc := d.ExpectRecv(uint64(i+1), ib.GRHLen+8)
			d.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == imm, fmt.Sprintf("immediate %#x", imm), "flags %#x, immediate %#x", uint32(wc.Flags), wc.Imm)
			d.PostSend(d.QP, d.addressed(d.newAH(d.PD), verbs.SendWR{WRID: 9, Opcode: verbs.OpSendImm, Imm: imm, SGL: d.LocalMem.SGL(0, 8)}))
			d.expectPacket(ib.Datagram(ib.AnyPSN, udQKey, uint32(d.QP.QPN()), d.LocalMem.Buf[:8]).WithOpcode(ib.OpUDSendOnlyImm).WithImm(imm).To(udPeerQPN))
		}
		d.SendPacket(d.datagram(Data(8)))
		wc := d.ExpectRecv(3, ib.GRHLen+8)
		d.Check(wc.Flags&verbs.WCWithImm == 0, "no immediate data", "flags %#x", uint32(wc.Flags))
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
			wr := d.addressed(ah, verbs.SendWR{WRID: 1, SGL: d.LocalMem.SGL(0, 8)})
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

// udAreaCase returns the case about the GRH area, the first 40 bytes of a UD receive, over IPv4 or
// IPv6, by family.
func udAreaCase(family int, id, title string) conformance.Case {
	return conformance.Case{
		ID:    id,
		Title: title,
		Cite:  annexA17("A17.4.5.1, A17.4.5.2", "ud/1", "ud/10", "cq/9"), Needs: verbs.CapUD,
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

// udPort is a UD queue pair of the device in RTS, with a scripted peer. Its Conn has no connection.
type udPort struct{ *Conn }

const (
	udQKey    = 0x11223344 // Q_Key of both ends
	udPeerQPN = 0x0b0e0e   // QPN of the peer
	udRecvLen = 1200       // length of each receive
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

// datagram returns a datagram of the peer to the queue pair.
func (d *udPort) datagram(payload []byte) ib.Packet {
	return ib.Datagram(0, udQKey, udPeerQPN, payload).To(uint32(d.QP.QPN()))
}

// newAH returns an address handle for the peer.
func (p *Port) newAH(pd verbs.PD) verbs.AH {
	ah, err := pd.CreateAH(p.peerAttr(p.Peer).AH)
	p.Must("an address handle", err)
	return ah
}

// addressed returns wr with the peer's queue pair as its destination, and as a SEND if it has no
// opcode.
func (d *udPort) addressed(ah verbs.AH, wr verbs.SendWR) verbs.SendWR {
	wr.Opcode = cmp.Or(wr.Opcode, verbs.OpSend)
	wr.UD = verbs.UD{AH: ah, QPN: udPeerQPN, QKey: udQKey}
	return wr
}

// post makes the device send a datagram of n bytes to the peer.
func (d *udPort) post(op verbs.WROpcode, n int) {
	d.PostSend(d.QP, d.addressed(d.newAH(d.PD), verbs.SendWR{WRID: 900, Opcode: op, SGL: d.LocalMem.SGL(4096, n), Imm: 0x1234}))
}

// expectDelivery sends a datagram of n bytes, which must complete the first receive.
func (d *udPort) expectDelivery(n int) {
	d.SendPacket(d.datagram(Data(n)))
	d.ExpectRecv(1, ib.GRHLen+n)
}

// expectAccepted fails the case unless a datagram completes the first receive.
func (d *udPort) expectAccepted() {
	d.expectDelivery(16)
	d.ExpectBytes(d.LocalMem, verbs.GRHLen, Data(16))
}

// expectHeader fails the case unless the IP header in the GRH area of the receive with this index
// matches want.
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

var udDropCases = conformance.Group{Needs: verbs.CapRC, DefaultLabels: labelUD}.Cases([]conformance.Case{{
	ID: "ud/qkey/other-key-dropped", Cite: ibta("9.6.1.4.1", "ud/2"), Needs: verbs.CapUD,
	Title:   "A datagram with another Q_Key than the queue pair's is dropped silently",
	Sends:   "datagrams with Q_Keys that differ in one bit, are 0 or that of QP 1; then one with the correct Q_Key",
	Expects: "a completion of the last only, in the first receive",
	Defects: []string{"KeysIgnored"}, Run: onUD(2, func(d *udPort) {
		for _, key := range udWrongKeys {
			d.expectDropped(d.datagram(Data(16)).WithDETH(key, udPeerQPN))
		}
		d.expectDelivery(24)
	}),
}, {
	ID: "ud/qkey/other-key-counted", Cite: ibta("9.6.1.4.1", "ud/2"), Needs: verbs.CapUD,
	Title:   "The port counts the datagrams that were dropped for their Q_Key",
	Sends:   "datagrams with wrong Q_Keys, and one with the correct one",
	Expects: "the counter of Q_Key violations increases by one for each wrong datagram",
	Defects: []string{"KeyViolationsUncounted"}, Run: onUD(1, func(d *udPort) {
		before := d.QueryPort().QKeyViolations
		for _, key := range udWrongKeys {
			d.SendPacket(d.datagram(Data(16)).WithDETH(key, udPeerQPN))
		}
		d.SendPacket(d.datagram(Data(24)))
		d.Sync()
		got := d.QueryPort().QKeyViolations - before
		d.Check(int(got) == len(udWrongKeys), "one more Q_Key violation for each wrong datagram", "%d for %d", got, len(udWrongKeys))
	}),
}, {
	ID: "ud/qkey/mad-with-another-key-dropped", Cite: ibta("9.6.1.4.1", "ud/4", "ud/2"), Needs: verbs.CapCM, Labels: labelCM,
	Title:   "QP 1 drops datagrams with another Q_Key than 0x80010000",
	Sends:   "a REQ for a service without a listener, with Q_Keys that are 0 and differ in one bit; then with the correct one",
	Expects: "a response to the last only, and one more Q_Key violation of the port for each of the others",
	Defects: []string{"KeysIgnored", "KeyViolationsUncounted"}, Run: OnPort(func(p *Port) {
		req := ib.CM(0x77, p.cmRequest(cmClosedPort, 0x4711))
		wrong, before := []uint32{0, 0x80010001, 0x00010000, ib.UDQKey}, p.QueryPort().QKeyViolations
		for _, key := range wrong {
			p.SendPacket(req.WithDETH(key, ib.GSIQPN))
			p.expectSilence(silencePeriod)
		}
		got := p.QueryPort().QKeyViolations - before
		p.Check(int(got) == len(wrong), "one more Q_Key violation for each wrong datagram", "%d for %d", got, len(wrong))
		p.SendPacket(req)
		p.expectPacket(ib.Op(ib.OpUDSendOnly).To(ib.GSIQPN))
	}),
}, {
	ID: "ud/drop/too-long-for-the-receive-leaves-the-qp-alive", Cite: ibta("error class D", "ud/6"), Needs: verbs.CapUD,
	Title:   "A datagram that is too long for its receive does not fail the queue pair",
	Sends:   "datagrams that are longer than a receive by one byte and by many, then one that fits",
	Expects: "no answer, the state RTS, and the last is delivered",
	Defects: []string{"UDLongKillsQP"}, Run: onUD(0, func(d *udPort) {
		for id := range uint64(3) {
			d.PostRecv(d.QP, id+1, d.LocalMem.SGE(int(id)*200, 200))
		}
		d.SendPacket(d.datagram(Data(161)))
		d.SendPacket(d.datagram(Data(1000)))
		d.expectSilence(silencePeriod)
		d.ExpectState(d.QP, verbs.QPStateRTS)
		d.SendPacket(d.datagram(Data(160)))
		// Another case checks that no receive is consumed.
		for wc := d.NextCompletion(); wc.Status != verbs.WCSuccess || wc.ByteLen != 200; wc = d.NextCompletion() {
			d.Check(wc.Status != verbs.WCSuccess && wc.Status != verbs.WCWRFlushErr, "the datagram that fits", "a completion with %v, %d bytes", wc.Status, wc.ByteLen)
		}
		d.ExpectState(d.QP, verbs.QPStateRTS)
	}),
}, {
	ID: "ud/drop/too-long-for-the-receive-uses-no-receive", Cite: ibta("error class D", "ud/6"), Needs: verbs.CapUD,
	Title:   "A datagram that is too long for its receive does not use it",
	Sends:   "a datagram that is longer, with its header area, than the only receive; then one that fills it",
	Expects: "no completion, then one with the second datagram",
	Defects: []string{"UDLongConsumes"}, Run: onUD(0, func(d *udPort) {
		d.PostRecv(d.QP, 1, d.LocalMem.SGE(0, 200))
		d.SendPacket(d.datagram(Data(164)))
		d.expectNoCompletion()
		d.ExpectUnchangedOutside(d.LocalMem, 0, 200)
		d.SendPacket(d.datagram(Data(160)))
		d.ExpectRecv(1, 200)
		d.ExpectBytes(d.LocalMem, ib.GRHLen, Data(160))
	}),
}, {
	ID: "ud/drop/without-receive-vanishes", Cite: ibta("error class D", "ud/7"), Needs: verbs.CapUD,
	Title:   "A datagram without a posted receive is dropped silently, and not delivered later",
	Sends:   "a datagram to a queue pair without receives; when one is posted, another",
	Expects: "no answer; a completion with the second datagram only",
	Defects: []string{"UDWaitsForReceive"}, Run: onUD(0, func(d *udPort) {
		d.SendPacket(d.datagram(Data(16)))
		d.expectSilence(silencePeriod)
		d.PostRecv(d.QP, 1, d.LocalMem.SGE(0, udRecvLen))
		d.expectNoCompletion()
		d.expectDelivery(24)
	}),
}, {
	ID: "ud/wc/bad-key-of-a-receive-is-a-protection-error", Cite: ibta("", "ud/16"), Needs: verbs.CapUD,
	Title:   "A receive of UD or UC with a bad key completes with LOC_PROT_ERR, and nothing is written",
	Sends:   "datagrams, and SENDs of UC of one and two packets if supported, into receives with a key that does not exist, and with memory of another protection domain",
	Expects: "the receive completes with LOC_PROT_ERR; nothing is sent",
	Defects: []string{"DatagramErrorUnnamed"}, Run: OnPort(func(p *Port) {
		for _, r := range badReceives {
			d := p.newUDPort(0, nil)
			d.PostRecv(d.QP, 1, r.buffer(d.Conn))
			d.SendPacket(d.datagram(Data(8)))
			d.expectProtectionError()
			for _, n := range []int{8, ucMTU + 8} {
				if p.Caps.Has(verbs.CapUC) {
					c := p.connect(ucSetup(0))
					sge := r.buffer(c)
					sge.Length = 2 * ucMTU
					c.PostRecv(c.QP, 1, sge)
					c.Send(ucSend(c.PeerPSN(0), n)...)
					c.expectProtectionError()
				}
			}
		}
	}),
}, {
	ID: "ud/wc/receive-without-local-write", Cite: ibta("", "ud/18"), Needs: verbs.CapUD,
	Title:   "A receive in memory without local write completes with LOC_PROT_ERR, the memory is unchanged, and the queue pair is in ERR",
	Sends:   "datagrams of 0 and 8 bytes into receives whose header area lacks local write, or header area and payload, and one of 8 bytes if only the payload lacks it",
	Expects: "LOC_PROT_ERR; then WR_FLUSH_ERR of another receive; nothing is sent",
	Defects: []string{"LocalWriteUnchecked", "UnwritableReceiveSucceeds", "UDReceiveErrorKeepsQP"}, Run: OnPort(func(p *Port) {
		for _, readOnly := range []udReadOnly{{area: true}, {area: true, payload: true}, {payload: true}} {
			for _, n := range []int{0, 8} {
				if readOnly.area || n > 0 { // else nothing is written to the read-only memory
					p.checkReadOnlyReceive(readOnly, n)
				}
			}
		}
	}),
}})

// udReadOnly says which parts of a receive are in memory without local write.
type udReadOnly struct{ area, payload bool }

// checkReadOnlyReceive fails the case unless a datagram of n bytes completes a receive that is
// partly in read-only memory with LOC_PROT_ERR, and moves the queue pair to ERR.
func (p *Port) checkReadOnlyReceive(readOnly udReadOnly, n int) {
	d := p.newUDPort(0, nil)
	mem := d.Memory(ib.GRHLen+64, verbs.AccessRemoteRead)
	sgl := d.LocalMem.SGL(0, ib.GRHLen)
	if readOnly.area {
		sgl = mem.SGL(0, ib.GRHLen)
	}
	if readOnly.payload {
		sgl = append(sgl, mem.SGE(ib.GRHLen, 64))
	} else {
		sgl = append(sgl, d.LocalMem.SGE(ib.GRHLen, 64))
	}
	d.PostRecv(d.QP, 1, sgl...)
	d.PostRecv(d.QP, 2, d.LocalMem.SGE(udRecvLen, udRecvLen))
	d.SendPacket(d.datagram(Data(n)))
	d.ExpectCompletion(1, verbs.WCLocProtErr)
	d.ExpectCompletion(2, verbs.WCWRFlushErr)
	d.ExpectUntouched(mem)
	d.expectSilence(shortWait)
	d.ExpectState(d.QP, verbs.QPStateErr)
}

// expectProtectionError fails the case unless receive 1 completes with LOC_PROT_ERR, LocalMem is
// unchanged, and the device sends nothing.
func (c *Conn) expectProtectionError() {
	c.ExpectCompletion(1, verbs.WCLocProtErr)
	c.ExpectUntouched(c.LocalMem)
	c.expectSilence(shortWait)
}

// udSendOps are the operations of UD.
var udSendOps = []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm}

// udWrongKeys are Q_Keys that differ from udQKey.
var udWrongKeys = []uint32{udQKey ^ 1, udQKey ^ 1<<31, 0, ib.GSIQKey}

var udPostCases = conformance.Group{Needs: verbs.CapUD, Labels: labelUD}.Cases([]conformance.Case{{
	ID: "ud/post/beyond-the-mtu-not-sent", Cite: ibta("C10-93.1.1", "ud/5"), Needs: verbs.CapRC,
	Title:   "A datagram longer than the port's MTU is not sent, neither whole nor segmented, and the queue pair continues",
	Sends:   "nothing",
	Expects: "no packet for SENDs, without and with immediate data, of 1, 4 and 2000 bytes too many; then a datagram that fills the MTU",
	Defects: []string{"UDOversizeCut"}, Run: onUD(0, func(d *udPort) {
		mtu, ah := d.QueryPort().ActiveMTU.Bytes(), d.newAH(d.PD)
		for i, more := range []int{1, 1, 4, 2000} {
			wr := d.SendWR(1, mtu+more)
			wr.Opcode = udSendOps[i%2]
			d.expectNotSent(d.addressed(ah, wr),
				// The clause wants the datagram dropped without an error. Other test
				// suites expect LOC_LEN_ERR, and a device may reject the post.
				verbs.WCSuccess, verbs.WCLocLenErr)
			if d.QueryQP(d.QP).State == verbs.QPStateSQE {
				d.ToState(d.QP, verbs.QPStateRTS)
			}
		}
		d.PostSend(d.QP, d.addressed(ah, d.SendWR(2, mtu)))
		d.expectPacket(ib.Datagram(ib.AnyPSN, udQKey, uint32(d.QP.QPN()), d.LocalMem.Buf[:mtu]))
		d.ExpectCompletion(2, verbs.WCSuccess)
	}),
}, {
	ID: "ud/post/handle-of-another-domain-refused", Cite: ibta("C10-10", "ud/11"), Needs: verbs.CapRC,
	Title:   "A datagram with an address handle of another protection domain fails, and is not sent",
	Sends:   "nothing",
	Expects: "that the post is refused, or a completion with an error; and no packet",
	Defects: []string{"AHOtherPD"}, Run: onUD(0, func(d *udPort) {
		ah := d.newAH(d.otherPD())
		for _, op := range udSendOps {
			wr := d.SendWR(1, 16)
			wr.Opcode = op
			// The first request may have moved its queue pair to SQE or ERR.
			d.newUDPort(0, nil).expectNotSent(d.addressed(ah, wr), verbs.WCLocQPOpErr, verbs.WCLocProtErr)
		}
	}),
}, {
	ID: "ud/post/other-operations-refused", Cite: ibta("", "ud/12"), Needs: verbs.CapRC,
	Title:   "Operations that UD does not support are refused when they are posted, and the queue pair stays in RTS",
	Sends:   "nothing",
	Expects: "that WRITEs, READs, atomics and SENDs with invalidation are refused, no packet, and the state RTS; then a datagram",
	Defects: []string{"WrongOpKillsQP"}, Run: onUD(0, func(d *udPort) {
		ah := d.newAH(d.PD)
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWriteImm, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpRDMAWrite, verbs.OpSendInv} {
			wr := d.addressed(ah, verbs.SendWR{WRID: 1, SGL: d.LocalMem.SGL(0, 8), Remote: PeerMemory})
			wr.Opcode = op
			n, err := d.QP.PostSend([]verbs.SendWR{wr})
			d.MustFail(fmt.Sprintf("%v on UD", op), err, nil)
			d.Check(n == 0, "no request posted", "%d", n)
		}
		d.expectNothing()
		d.ExpectState(d.QP, verbs.QPStateRTS)
		d.PostSend(d.QP, d.addressed(ah, d.SendWR(2, 8)))
		d.expectPacket(ib.Datagram(ib.AnyPSN, udQKey, uint32(d.QP.QPN()), d.LocalMem.Buf[:8]))
		d.ExpectCompletion(2, verbs.WCSuccess)
	}),
}, {
	ID: "ud/post/handle-keeps-its-domain", Cite: ibta("C10-10", "ud/11"), Level: conformance.Should,
	Title:   "A protection domain with address handles cannot be freed",
	Sends:   "nothing",
	Expects: "that closing the domain is refused until the handle is closed",
	Defects: []string{"AHsUncounted"}, Run: onUD(0, func(d *udPort) {
		other := d.otherPD()
		ah := d.newAH(other)
		d.MustFail("freeing the protection domain of an address handle", other.Close(), nil)
		d.Must("an address handle that can be closed", ah.Close())
		d.Must("a protection domain without address handles that can be freed", other.Close())
	}),
}, {
	ID: "ud/post/closed-handle-is-closed", Cite: ibta("C10-10", "ud/11"), Level: conformance.Should, Needs: verbs.CapRC,
	Title:   "An address handle can be destroyed once, and not used afterwards",
	Sends:   "nothing",
	Expects: "that a second close is refused, and a datagram with the closed handle is an error and not sent",
	Defects: []string{"AHClosesTwice"}, Run: onUD(0, func(d *udPort) {
		ah := d.newAH(d.PD)
		d.Must("an address handle that can be closed", ah.Close())
		d.MustFail("destroying an address handle twice", ah.Close(), nil)
		d.expectNotSent(d.addressed(ah, d.SendWR(1, 16)), verbs.WCLocQPOpErr, verbs.WCLocProtErr)
	}),
}})

// expectNotSent posts a request, and fails the case if the device sends a packet. The device must
// refuse the post, or complete the request with one of these statuses.
func (d *udPort) expectNotSent(wr verbs.SendWR, statuses ...verbs.WCStatus) {
	_, err := d.QP.PostSend([]verbs.SendWR{wr})
	d.expectSilence(silencePeriod)
	if err != nil {
		return
	}
	wc := d.NextCompletion()
	d.Check(wc.WRID == wr.WRID && slices.Contains(statuses, wc.Status),
		fmt.Sprintf("a refused post, or a completion with one of %v", statuses), "%s", rig.Describe(&wc))
}

var multicastCases = conformance.Group{Needs: verbs.CapUD | verbs.CapMulticast, Labels: labelUD}.Cases([]conformance.Case{{
	ID: "ud/mcast/each-attached-qp-gets-a-copy", Cite: ibta("", "ud/13"), Needs: verbs.CapRC,
	Title:   "A datagram to a multicast group is delivered once to each queue pair that is attached to it, and to no other",
	Sends:   "a datagram for QP 0xFFFFFF to a group of which two of four queue pairs are members, and one in RESET; another when one of them has left; one for the number of each other queue pair",
	Expects: "one completion for each member that can receive, and none for the others",
	Defects: []string{"MulticastOneCopy", "MulticastToOwnQPN", "MulticastEndsAtReset"}, Run: OnPort(func(p *Port) {
		group, other := multicastGroup(p.deviceAddr, 1), multicastGroup(p.deviceAddr, 2)
		a, b, c := p.newUDPort(3, nil), p.newUDPort(3, nil), p.newUDPort(3, nil)
		none := p.newUDPort(3, nil) // is in no group
		inReset := p.newUDPort(0, nil)
		p.Must("a queue pair that joins a group", inReset.QP.AttachMulticast(verbs.GIDFrom(group)))
		inReset.ToState(inReset.QP, verbs.QPStateReset)
		p.Must("a queue pair that joins a group", a.QP.AttachMulticast(verbs.GIDFrom(group)))
		p.Must("a queue pair that joins a group", b.QP.AttachMulticast(verbs.GIDFrom(group)))
		p.Must("a queue pair that joins a group", c.QP.AttachMulticast(verbs.GIDFrom(other)))
		pkt := ib.Datagram(0, udQKey, udPeerQPN, Data(32)).To(uint32(verbs.MulticastQPN)).Via(p.Peer, group)
		p.SendPacket(pkt)
		p.expectCopies(a, b)
		p.Must("a queue pair that leaves a group", a.QP.DetachMulticast(verbs.GIDFrom(group)))
		p.SendPacket(pkt)
		p.expectCopies(b)
		for _, other := range []*udPort{a, c, none} {
			p.SendPacket(pkt.To(uint32(other.QP.QPN())))
		}
		p.expectNoCompletion()
		p.Must("a queue pair that leaves a group", b.QP.DetachMulticast(verbs.GIDFrom(group)))
		p.Must("a queue pair that leaves a group", inReset.QP.DetachMulticast(verbs.GIDFrom(group)))
		p.Must("a queue pair that leaves a group", c.QP.DetachMulticast(verbs.GIDFrom(other)))
	}),
}, {
	ID: "ud/mcast/attached-qp-not-destroyed", Cite: ibta("o10-2.2.3", "ud/14"),
	Title:   "A queue pair that is attached to a multicast group cannot be destroyed",
	Sends:   "nothing",
	Expects: "that closing the queue pair is refused until it has left the group",
	Defects: []string{"InUseDestroyed"}, Run: onUD(0, func(d *udPort) {
		group := verbs.GIDFrom(multicastGroup(d.deviceAddr, 1))
		d.Must("a queue pair that joins a group", d.QP.AttachMulticast(group))
		d.MustFail("destroying a queue pair in a group", d.QP.Close(), nil)
		d.Must("a queue pair that leaves a group", d.QP.DetachMulticast(group))
		d.Must("a queue pair in no group that can be destroyed", d.QP.Close())
	}),
}, {
	ID: "ud/mcast/only-ud-joins-only-groups", Cite: ibta("", "ud/17"),
	Title:   "A queue pair of another service than UD, or with a GID that is no group's, is not attached",
	Sends:   "nothing",
	Expects: "that attaching queue pairs of RC, UC and XRC, if supported, to a group, and one of UD to unicast GIDs and the zero GID, is refused",
	Defects: []string{"AnythingAttached"}, Run: onUD(0, func(d *udPort) {
		for _, gid := range []verbs.GID{
			verbs.GIDFrom(d.Peer), verbs.GIDFrom(d.deviceAddr), verbs.GIDFrom(netip.MustParseAddr("10.77.0.9")), verbs.GIDFrom(netip.MustParseAddr("fe80::9")), {},
		} {
			d.MustFail(fmt.Sprintf("attaching a queue pair to %v", gid.Addr()), d.QP.AttachMulticast(gid), nil)
		}
		for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeXRCSend} {
			if d.Caps.Has(capOf[kind]) {
				c := d.connect(Setup{qpType: kind})
				d.MustFail(fmt.Sprintf("attaching a queue pair of %v to a group", kind), c.QP.AttachMulticast(verbs.GIDFrom(multicastGroup(d.deviceAddr, 1))), nil)
			}
		}
	}),
}})

// multicastGroup returns the n-th multicast group of the address family of addr.
func multicastGroup(addr netip.Addr, n byte) netip.Addr {
	if addr.Is4() {
		return netip.AddrFrom4([4]byte{239, 77, 0, n})
	}
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x0e, 14: 0x77, 15: n})
}

// expectCopies fails the case unless these queue pairs, and no others, receive one datagram each.
func (p *Port) expectCopies(members ...*udPort) {
	missing := make(map[verbs.QPN]bool)
	for _, m := range members {
		missing[m.QP.QPN()] = true
	}
	for len(missing) > 0 {
		wc, ok := p.PollCompletion(p.ResponseTimeout())
		switch {
		case !ok:
			p.Fail(fmt.Sprintf("a copy for each of %d members", len(members)), "%d", len(members)-len(missing))
		case wc.Status != verbs.WCSuccess || !missing[wc.QPN]:
			p.Fail("one copy for each member", "a completion with %v of queue pair %#x, which is not a member or already has a copy", wc.Status, uint32(wc.QPN))
		}
		m := members[slices.IndexFunc(members, func(m *udPort) bool { return m.QP.QPN() == wc.QPN })]
		m.ExpectBytes(m.LocalMem, int(wc.WRID-1)*udRecvLen+ib.GRHLen, Data(int(wc.ByteLen)-ib.GRHLen))
		delete(missing, wc.QPN)
	}
	p.expectNoCompletion()
}
