package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var udDropCases = conformance.Group{Needs: verbs.CapRC, DefaultLabels: labelUD}.Cases([]conformance.Case{{
	ID: "ud/qkey/other-key-dropped", Cite: ibta("9.6.1.4.1", "roce/ud/2"), Needs: verbs.CapUD,
	Run: onUD(2, func(d *udPort) {
		for _, key := range udWrongKeys {
			d.expectDropped(d.datagram(Data(16)).WithDETH(key, udPeerQPN))
		}
		d.SendPacket(d.datagram(Data(24)))
		d.ExpectRecv(1, ib.GRHLen+24)
	}),
}, {
	ID: "ud/qkey/other-key-counted", Cite: ibta("9.6.1.4.1", "roce/ud/2"), Needs: verbs.CapUD,
	Run: onUD(1, func(d *udPort) {
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
	ID: "ud/qkey/mad-with-another-key-dropped", Cite: ibta("", "roce/ud/4"), Needs: verbs.CapCM, Labels: labelCM,
	Run: OnPort(func(p *Port) {
		req := ib.CM(0x77, p.cmRequest(cmClosedPort, 0x4711))
		for _, key := range []uint32{0, 0x80010001, 0x00010000, ib.UDQKey} {
			p.SendPacket(req.WithDETH(key, ib.GSIQPN))
			p.expectSilence(silencePeriod)
		}
		p.SendPacket(req)
		p.expectPacket(ib.Op(ib.OpUDSendOnly).To(ib.GSIQPN))
	}),
}, {
	ID:   "ud/drop/too-long-for-the-receive-leaves-the-qp-alive",
	Cite: ibta("error class D", "roce/ud/6"), Needs: verbs.CapUD,
	Run: onUD(0, func(d *udPort) {
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
	ID:   "ud/drop/too-long-for-the-receive-uses-no-receive",
	Cite: ibta("error class D", "roce/ud/6"), Needs: verbs.CapUD,
	Run: onUD(0, func(d *udPort) {
		d.PostRecv(d.QP, 1, d.LocalMem.SGE(0, 200))
		d.SendPacket(d.datagram(Data(164)))
		d.expectNoCompletion()
		d.ExpectUnchanged(d.LocalMem, 0, 200)
		d.SendPacket(d.datagram(Data(160)))
		d.ExpectRecv(1, 200)
		d.ExpectBytes(d.LocalMem, ib.GRHLen, Data(160))
	}),
}, {
	ID: "ud/drop/without-receive-vanishes", Cite: ibta("error class D", "roce/ud/7"), Needs: verbs.CapUD,
	Run: onUD(0, func(d *udPort) {
		d.SendPacket(d.datagram(Data(16)))
		d.expectSilence(silencePeriod)
		d.PostRecv(d.QP, 1, d.LocalMem.SGE(0, udRecvLen))
		d.expectNoCompletion()
		d.SendPacket(d.datagram(Data(24)))
		d.ExpectRecv(1, ib.GRHLen+24)
	}),
}})

// udWrongKeys are Q_Keys that differ from udQKey.
var udWrongKeys = []uint32{udQKey ^ 1, udQKey ^ 1<<31, 0, ib.GSIQKey}
