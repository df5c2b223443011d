package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var udPostCases = conformance.Group{Needs: verbs.CapUD, Labels: labelUD}.Cases([]conformance.Case{{
	ID: "ud/post/beyond-the-mtu-not-sent", Cite: ibta("C10-93.1.1", "roce/ud/5"), Needs: verbs.CapRC,
	Run: onUD(0, func(d *udPort) {
		attr := d.QueryPort()
		mtu, ah := attr.ActiveMTU.Bytes(), d.newAH(d.PD)
		for _, more := range []int{1, 4, 2000} {
			d.expectNotSent(d.sendTo(ah, verbs.SendWR{WRID: 1, Flags: verbs.SendSignaled, SGL: d.LocalMem.SGL(0, mtu+more)}),
				// The clause wants the datagram dropped without an error. Other test
				// suites expect LOC_LEN_ERR, and a device may reject the post.
				verbs.WCSuccess, verbs.WCLocLenErr)
			d.recoverFromSQE()
		}
		d.PostSend(d.QP, d.sendTo(ah, verbs.SendWR{WRID: 2, Flags: verbs.SendSignaled, SGL: d.LocalMem.SGL(0, mtu)}))
		d.expectPacket(ib.Datagram(ib.AnyPSN, udQKey, uint32(d.QP.QPN()), d.LocalMem.Buf[:mtu]))
		d.ExpectCompletion(2, verbs.WCSuccess)
	}),
}, {
	ID: "ud/post/handle-of-another-domain-refused", Cite: ibta("C10-10", "roce/ud/11"), Needs: verbs.CapRC,
	Run: onUD(0, func(d *udPort) {
		other, err := d.Device.AllocPD()
		d.Must("another protection domain", err)
		d.expectNotSent(d.sendTo(d.newAH(other), verbs.SendWR{WRID: 1, Flags: verbs.SendSignaled, SGL: d.LocalMem.SGL(0, 16)}),
			verbs.WCLocQPOpErr, verbs.WCLocProtErr)
	}),
}, {
	ID: "ud/post/other-operations-refused", Cite: ibta("", "roce/ud/12"), Needs: verbs.CapRC,
	Run: onUD(0, func(d *udPort) {
		ah := d.newAH(d.PD)
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWriteImm, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpRDMAWrite} {
			wr := d.sendTo(ah, verbs.SendWR{WRID: 1, SGL: d.LocalMem.SGL(0, 8), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}})
			wr.Opcode = op
			n, err := d.QP.PostSend([]verbs.SendWR{wr})
			d.MustFail(fmt.Sprintf("%v on UD", op), err, nil)
			d.Check(n == 0, "no request posted", "%d", n)
		}
		d.expectSilence(silencePeriod)
		d.ExpectNoCompletion()
		d.ExpectState(d.QP, verbs.QPStateRTS)
		d.PostSend(d.QP, d.sendTo(ah, verbs.SendWR{WRID: 2, Flags: verbs.SendSignaled, SGL: d.LocalMem.SGL(0, 8)}))
		d.expectPacket(ib.Datagram(ib.AnyPSN, udQKey, uint32(d.QP.QPN()), d.LocalMem.Buf[:8]))
		d.ExpectCompletion(2, verbs.WCSuccess)
	}),
}, {
	ID: "ud/post/handle-keeps-its-domain", Cite: ibta("C10-10", "roce/ud/11"), Level: conformance.Should,
	Run: onUD(0, func(d *udPort) {
		other, err := d.Device.AllocPD()
		d.Must("another protection domain", err)
		ah := d.newAH(other)
		d.MustFail("freeing the protection domain of an address handle", other.Close(), nil)
		d.Must("an address handle that can be closed", ah.Close())
		d.Must("a protection domain without address handles that can be freed", other.Close())
	}),
}, {
	ID:   "ud/post/closed-handle-is-closed",
	Cite: ibta("C10-10", "roce/ud/11"), Level: conformance.Should, Needs: verbs.CapRC,
	Run: onUD(0, func(d *udPort) {
		ah := d.newAH(d.PD)
		d.Must("an address handle that can be closed", ah.Close())
		d.MustFail("destroying an address handle twice", ah.Close(), nil)
		d.expectNotSent(d.sendTo(ah, verbs.SendWR{WRID: 1, Flags: verbs.SendSignaled, SGL: d.LocalMem.SGL(0, 16)}),
			verbs.WCLocQPOpErr, verbs.WCLocProtErr)
	}),
}})

// recoverFromSQE moves the queue pair from SQE to RTS; it does nothing in other states.
func (d *udPort) recoverFromSQE() {
	a := d.QueryQP(d.QP)
	if a.State == verbs.QPStateSQE {
		d.ToState(d.QP, verbs.QPStateRTS)
	}
}

// expectNotSent fails the case if a request sends a packet. The device must reject the
// post, or complete the request with one of these statuses.
func (d *udPort) expectNotSent(wr verbs.SendWR, statuses ...verbs.WCStatus) {
	_, err := d.QP.PostSend([]verbs.SendWR{wr})
	d.expectSilence(silencePeriod)
	if err != nil {
		return
	}
	wc := d.NextCompletion()
	for _, s := range statuses {
		if wc.WRID == wr.WRID && wc.Status == s {
			return
		}
	}
	d.Fail(fmt.Sprintf("a refused post, or a completion with one of %v", statuses), "%s", rig.Describe(&wc))
}
