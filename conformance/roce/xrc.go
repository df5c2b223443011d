package roce

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var xrcCases = conformance.Group{Needs: verbs.CapXRC, Labels: []string{"service:xrc"}}.Cases([]conformance.Case{{
	ID: "xrc/pkt/requests-carry-the-srq-number", Cite: ibta("", "xrc/1"),
	Title:   "XRC requests have XRC opcodes and the SRQ number after the BTH",
	Sends:   "a sequence NAK, an RNR NAK and nothing to the device's SENDs, WRITE and READ; then an ACK and a READ response",
	Expects: "opcode 0xA0 and the operation, and the number of the SRQ in every packet, also each time all are retransmitted; completions with success",
	Defects: []string{"XRCETHMisplaced", "XRCETHNotRepeated", "XRCNoTimer"}, Run: onConn(Setup{qpType: verbs.QPTypeXRCSend, Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		n := 2*MTU + 4
		const srqn = 0xabc123
		wrs := []verbs.SendWR{c.SendWR(1, 24), c.SendWR(2, n), c.WriteWR(3, 24), c.ReadWR(4, 24)}
		for i := range wrs {
			wrs[i].XRC.SRQN = srqn
		}
		c.PostSend(c.QP, wrs...)
		all := slices.Concat(c.wantSend(0, 24), c.wantSend(1, n), c.wantWrite(4, 24), c.wantRead(5, 24))
		for i := range all {
			all[i] = all[i].OnXRC(srqn)
		}
		for _, response := range []ib.Packet{c.peerNak(0, ib.NakSequence, 0), ib.RNR(c.DevicePSN(0), 1, 0)} {
			c.expectAll(all)
			c.Send(response.On(ib.XRC))
		}
		c.expectAll(all)
		c.expectAll(all) // by the timer
		c.Send(c.peerAck(4, 3).On(ib.XRC))
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(5), 4, Data(24)).On(ib.XRC), 1, 2, 3, 4)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(24))
	}),
}, {
	ID: "xrc/pkt/answers-carry-none", Cite: ibta("", "xrc/1"),
	Title:   "XRC responses have XRC opcodes, and no SRQ number",
	Sends:   "a SEND, a WRITE and a READ of XRC",
	Expects: "two ACKs and a READ response of XRC, with an AETH directly after the BTH and the data read only",
	Defects: []string{"XRCETHMisplaced"}, Run: onXRC(func(x *xrcTarget) {
		srqn := x.srqs[0].Number()
		x.exchange(x.peerSend(0, 16).OnXRC(srqn), x.deviceAck(0, 1).On(ib.XRC))
		x.exchange(x.peerWrite(1, 16).OnXRC(srqn), x.deviceAck(1, 2).On(ib.XRC))
		x.exchange(x.peerRead(2, 16).OnXRC(srqn), ib.ReadResponseOnly(x.PeerPSN(2), 3, Data(16)).On(ib.XRC))
		x.expectDelivered(0, 16)
	}),
}, {
	ID: "xrc/srq/unknown-number-refused", Cite: ibta("", "xrc/2"),
	Title:   "An XRC message for an SRQ that does not exist is refused as an invalid request",
	Sends:   "a SEND for an SRQ of a number that none has",
	Expects: "a NAK for an invalid request, and no completion",
	Defects: []string{"XRCAnySRQ"}, Run: onXRC(func(x *xrcTarget) { x.expectRefused(0xfffff0) }),
}, {
	ID: "xrc/srq/number-of-another-domain-refused", Cite: ibta("", "xrc/2"),
	Title:   "An XRC message for an SRQ of another domain than the target's is refused as an invalid request",
	Sends:   "a SEND for an SRQ of another XRC domain",
	Expects: "a NAK for an invalid request, and no completion",
	Defects: []string{"XRCAnySRQ"}, Run: onXRC(func(x *xrcTarget) {
		domain, err := x.Device.OpenXRCD()
		x.Must("another XRC domain", err)
		x.expectRefused(x.newSRQ(domain, 3).Number())
	}),
}, {
	ID: "xrc/srq/one-initiator-reaches-many", Cite: ibta("", "xrc/3"),
	Title:   "One XRC connection reaches every SRQ of the target's domain by its number",
	Sends:   "SENDs of one connection, in turn for two SRQs",
	Expects: "each in a receive of the SRQ that it names",
	Defects: []string{"XRCAnySRQ"}, Run: onXRC(func(x *xrcTarget) {
		for i := range 4 {
			which := (i + 1) % 2
			x.exchange(x.peerSend(i, 16+i).OnXRC(x.srqs[which].Number()), x.deviceAck(i, uint32(i+1)).On(ib.XRC))
			x.expectDelivered(which, 16+i)
		}
	}),
}, {
	ID: "xrc/pd/domain-of-the-srq-counts", Cite: ibta("", "xrc/4"),
	Title:   "The key of an XRC request is checked in the protection domain of the SRQ that the request names",
	Sends:   "for each of WRITE, WRITE with immediate data, READ and atomics: requests for two SRQs of different protection domains, each to a region of its domain; a READ or atomic of the first SRQ again; then one to a region of the other",
	Expects: "the first two are executed, and the repeated one is answered again; to the last a NAK for a remote access error",
	Defects: []string{"IgnorePD", "XRCRepeatInLastDomain"}, Run: OnPort(func(p *Port) {
		ops := []remoteOp{writeOp, writeImmOp, readOp}
		if p.Caps.Has(verbs.CapAtomics) {
			ops = append(ops, addOp, swapOp)
		}
		for _, op := range ops {
			p.Note("now %v", op)
			x, pd := p.newXRCTarget(), p.otherPD()
			other := p.CreateSRQ(verbs.SRQInit{PD: pd, Type: verbs.SRQXRC, MaxWR: 4, MaxSGE: 1, XRCD: x.domain, CQ: p.CQ})
			p.PostRecv(other, 300)
			m := p.MemoryIn(pd, 64, allAccess)
			executed := func(k int, mem *rig.Memory, srq verbs.SRQ) {
				got := x.exchange(op.packet(x.PeerPSN(k), wordRETH(mem, 2)).OnXRC(srq.Number()), ib.Op(op.answer).WithPSN(x.PeerPSN(k)).On(ib.XRC))
				x.Check(got.Syndrome()>>5 == uint8(ib.AckPositive), "a response without a NAK", "%v", got)
			}
			executed(0, x.TargetMem, x.srqs[0])
			executed(1, m, other)
			if op.answer != ib.OpAcknowledge {
				executed(0, x.TargetMem, x.srqs[0]) // a duplicate
			}
			m.Snapshot()
			x.exchange(op.packet(x.PeerPSN(2), wordRETH(m, 3)).OnXRC(x.srqs[0].Number()), x.deviceNak(2, ib.NakRemoteAccess, 2).On(ib.XRC))
			x.ExpectUntouched(m)
		}
	}),
}, {
	ID: "xrc/qp/target-survives-its-creator", Cite: ibta("", "xrc/3"),
	Title:   "An XRC target remains when the handle that created it is closed and another is open",
	Sends:   "a SEND before and one after the first handle is closed",
	Expects: "both acknowledged and delivered",
	Defects: []string{"XRCTargetDies"}, Run: onXRC(func(x *xrcTarget) {
		number := x.srqs[0].Number()
		x.exchange(x.peerSend(0, 16).OnXRC(number), x.deviceAck(0, 1).On(ib.XRC))
		x.expectDelivered(0, 16)
		second, err := x.Device.OpenQP(x.domain, x.QP.QPN())
		x.Must("a second handle of the target", err)
		qpn := uint32(x.QP.QPN())
		x.Must("a first handle that can be closed", x.QP.Close())
		x.SendPacket(x.peerSend(1, 24).OnXRC(number).To(qpn))
		x.expect(x.deviceAck(1, 2).On(ib.XRC))
		x.expectDelivered(0, 24)
		x.ExpectState(second, verbs.QPStateRTR)
	}),
}})

// xrcTarget is an XRC target queue pair of the device, with a scripted initiator.
type xrcTarget struct {
	*Conn
	domain verbs.XRCD
	// srqs are two shared receive queues of the domain with four receives each. The IDs
	// are 100 to 103 and 200 to 203.
	srqs [2]verbs.SRQ
	mems []*rig.Memory // buffers of the receives, by SRQ
}

const xrcRecvLen = 64

// onXRC makes the body of a case that uses an XRC target.
func onXRC(body func(*xrcTarget)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.newXRCTarget()) })
}

// newXRCTarget makes an XRC target in RTR. It needs no RTS, since a target sends no requests.
func (p *Port) newXRCTarget() *xrcTarget {
	x := &xrcTarget{Conn: &Conn{Port: p, TargetMem: p.Memory(memLen, allAccess)}}
	x.domain = rig.Result(p.Device.OpenXRCD())(p, "an XRC domain")
	for i := range x.srqs {
		x.srqs[i] = x.newSRQ(x.domain, i+1)
	}
	x.QP = p.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x.domain})
	p.ToInit(x.QP, allAccess&^verbs.AccessLocalWrite, 0)
	x.Attr = p.peerAttr(p.Peer)
	x.Attr.DestQPN, x.Attr.RQPSN = peerQPN, firstPeerPSN
	p.ToRTR(x.QP, x.Attr)
	return x
}

// close frees the objects.
func (x *xrcTarget) close() {
	x.Must("a queue pair that can be destroyed", x.QP.Close())
	for _, srq := range x.srqs {
		x.Must("an SRQ that can be destroyed", srq.Close())
	}
	x.Must("an XRC domain that can be closed", x.domain.Close())
	for _, m := range append(x.mems, x.TargetMem) {
		x.Must("memory that can be deregistered", m.Close())
	}
}

// newSRQ makes a shared receive queue with four receives, with IDs from 100*hundreds on.
func (x *xrcTarget) newSRQ(domain verbs.XRCD, hundreds int) verbs.SRQ {
	srq := x.CreateSRQ(verbs.SRQInit{PD: x.PD, Type: verbs.SRQXRC, MaxWR: 4, MaxSGE: 1, XRCD: domain, CQ: x.CQ})
	mem := x.Memory(4*xrcRecvLen, verbs.AccessLocalWrite)
	x.mems = append(x.mems, mem)
	for i := range 4 {
		x.PostRecv(srq, uint64(100*hundreds+i), mem.SGE(i*xrcRecvLen, xrcRecvLen))
	}
	return srq
}

// expectDelivered fails the case unless the next completion is that of a receive of srqs[which],
// with a message of n bytes.
func (x *xrcTarget) expectDelivered(which, n int) {
	wc := x.NextCompletion()
	x.Check(wc.Status == verbs.WCSuccess && int(wc.ByteLen) == n && int(wc.WRID)/100-1 == which,
		fmt.Sprintf("%d bytes in a receive of SRQ %d", n, which), "%s", rig.Describe(&wc))
	x.ExpectBytes(x.mems[which], int(wc.WRID)%100*xrcRecvLen, Data(n))
}

// expectRefused sends a SEND to this SRQ, which the device must answer by a NAK for an invalid
// request, and which must use no receive.
func (x *xrcTarget) expectRefused(srq uint32) {
	x.exchange(ib.SendOnly(x.PeerPSN(0), Data(16)).OnXRC(srq).AckReq(), x.deviceNak(0, ib.NakInvalidRequest, 0).On(ib.XRC))
	x.expectNoCompletion()
	x.ExpectUntouched(x.mems...)
}
