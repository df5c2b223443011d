package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var xrcCases = conformance.Group{Needs: verbs.CapXRC | verbs.CapSRQ, Labels: []string{"service:xrc"}}.Cases([]conformance.Case{{
	ID: "verbs/xrc/delivers-to-the-queue-that-is-named", Cite: cite("ibv_create_srq_ex(3)", "verbs/xrc/1"),
	Title:   "An XRC message is delivered to the shared receive queue with its number, and completes on that queue's CQ",
	Sends:   "messages of the peer for each of two queues of a domain, over one target",
	Expects: "each in a receive of its queue",
	Defects: []string{"SRQNumberWrong"}, Run: onXRC(func(x *xrcPair) {
		for _, which := range []int{1, 0, 1} {
			wr := x.partner.sendWR(9, 0, 24)
			wr.XRC.SRQN = x.srqs[which].Number()
			x.partner.execute(wr)
			x.dut.CQ = x.cqs[which]
			wc := x.dut.ExpectRecv(uint64(which), 24)
			x.dut.Check(wc.QPN == x.dut.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(x.dut.qp.QPN())), "%#x", uint32(wc.QPN))
		}
	}),
}, {
	ID: "verbs/xrc/domain-in-use", Cite: cite("ibv_close_xrcd(3)", "verbs/xrc/2"),
	Title:   "An XRC domain cannot be closed while a target or a shared receive queue is in it",
	Expects: "EBUSY, until both are closed",
	Defects: []string{"BusyClosed"}, Run: rig.Body(func(r *rig.Rig) {
		domain := xrcDomain(r)
		target := r.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: domain})
		srq := xrcSRQ(r, domain)
		r.MustFail("closing a domain in use", domain.Close(), verbs.ErrBusy)
		r.Must("a target that can be closed", target.Close())
		r.MustFail("closing a domain with a shared receive queue", domain.Close(), verbs.ErrBusy)
		r.Must("a shared receive queue that can be closed", srq.Close())
		r.Must("an empty domain that can be closed", domain.Close())
	}),
}, {
	ID: "verbs/xrc/target-opened-by-number", Cite: cite("ibv_open_qp(3)", "verbs/xrc/3"),
	Title:   "A target can be opened by its QPN in its domain, and exists until its last handle is closed",
	Expects: "further handles with the same QPN; a refusal in another domain, and of an unknown QPN; a handle that works when the others are closed",
	Defects: []string{"OpenQPAny", "OpenedTwiceClosedOnce"}, Run: rig.Body(func(r *rig.Rig) {
		domain, other := xrcDomain(r), xrcDomain(r)
		first := r.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: domain})
		r.ToInit(first, 0, qKey)
		second := rig.Result(r.Device.OpenQP(domain, first.QPN()))(r, "a second handle")
		r.Check(second.QPN() == first.QPN(), fmt.Sprintf("queue pair %#x", uint32(first.QPN())), "%#x", uint32(second.QPN()))
		r.MustFail("a target of another domain", errorOf(r.Device.OpenQP(other, first.QPN())), nil)
		r.MustFail("an unknown target", errorOf(r.Device.OpenQP(domain, first.QPN()+77)), nil)
		third := rig.Result(r.Device.OpenQP(domain, first.QPN()))(r, "a third handle")
		r.Must("a first handle that can be closed", first.Close())
		r.ExpectState(second, initState)
		r.Must("a second handle that can be closed", second.Close())
		r.ToState(third, errState)
		r.MustFail("closing a domain with a target", domain.Close(), verbs.ErrBusy)
		r.Must("a third handle that can be closed", third.Close())
		r.Must("an empty domain that can be closed", domain.Close())
	}),
}, {
	ID: "verbs/xrc/event-names-an-open-handle", Cite: cite("ibv_get_async_event(3)", "verbs/xrc/3", "verbs/async/3"),
	Title:   "An event of a target with several handles names a handle that is open",
	Sends:   "a WRITE of the peer with an invalid key, to a target that was opened again, and whose first handle was closed",
	Expects: "QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL that names the second handle",
	Defects: []string{"EventNamesClosedHandle"}, Run: onXRC(func(x *xrcPair) {
		second := rig.Result(x.dut.Device.OpenQP(x.domain, x.dut.qp.QPN()))(x.dut, "a second handle")
		x.dut.Must("a first handle that can be closed", x.dut.qp.Close())
		x.dut.qp = second
		x.partner.PostSend(x.partner.qp, x.partner.writeWR(9, 0, 8, verbs.Remote{}))
		x.expectAccessEvent()
	}),
}, {
	ID: "verbs/xrc/target-takes-no-work", Cite: cite("ibv_create_qp_ex(3)", "verbs/xrc/4"),
	Title:   "Posting sends or receives to a target fails",
	Expects: "a send and a receive posted to a target are refused",
	Defects: []string{"BadPostsSwallowed"}, Run: onXRC(func(x *xrcPair) {
		x.dut.expectPostRefused("a send on a target", x.dut.sendWR(1, 0, 8), nil)
		expectRecvRefused(x.dut.Rig, "a receive on a target", x.dut.qp, x.dut.mem.SGL(0, 64), nil)
	}),
}})

// xrcPair is an XRC target of the device with two SRQs, and an initiator of the partner. Each SRQ
// has two receives, whose ID is the index of the SRQ.
type xrcPair struct {
	*qpPair
	domain verbs.XRCD
	srqs   [2]verbs.SRQ
	cqs    [2]verbs.CQ // for receives of the SRQs
}

// onXRC makes the body of a case from a function that uses a connected xrcPair. SRQ i has two
// receives, both with ID i.
func onXRC(body func(*xrcPair)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		requireModifyConnect(r) // the queue pairs are connected by ibv_modify_qp below
		d := rig.NewPair(r)
		domain := xrcDomain(r)
		x := &xrcPair{domain: domain, qpPair: &qpPair{
			dut:     &endpoint{Rig: d.DUT, mem: d.DUT.Memory(memLen, verbs.AccessLocalWrite)},
			partner: &endpoint{Rig: d.Partner, mem: d.Partner.Memory(memLen, verbs.AccessLocalWrite)},
		}}
		for i := range x.srqs {
			x.cqs[i] = newCQ(r, 8, nil)
			x.srqs[i] = r.CreateSRQ(verbs.SRQInit{PD: r.PD, Type: verbs.SRQXRC, MaxWR: 8, MaxSGE: 1, XRCD: domain, CQ: x.cqs[i]})
			r.PostRecv(x.srqs[i], uint64(i), x.dut.mem.SGE(4096*i, 64))
			r.PostRecv(x.srqs[i], uint64(i), x.dut.mem.SGE(4096*i+64, 64))
		}
		x.dut.qp = r.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: domain})
		x.partner.qp = d.Partner.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCSend, PD: d.Partner.PD, SendCQ: d.Partner.CQ, Caps: verbs.QPCaps{MaxSendWR: 16, MaxSendSGE: 2}})
		attr := connectionAttrs
		for _, dir := range []struct{ from, to *endpoint }{{x.dut, x.partner}, {x.partner, x.dut}} {
			dir.from.ToInit(dir.from.qp, 0, qKey)
			attr.DestQPN, attr.AH = dir.to.qp.QPN(), dir.from.PathTo(dir.to.Rig)
			dir.from.ToRTR(dir.from.qp, attr)
		}
		d.Partner.ToRTS(x.partner.qp, attr) // the target stays in RTR: it sends no requests
		body(x)
	})
}

// xrcDomain opens an XRC domain.
func xrcDomain(r *rig.Rig) verbs.XRCD {
	return rig.Result(r.Device.OpenXRCD())(r, "an XRC domain")
}

// xrcSRQ makes an XRC SRQ in a domain.
func xrcSRQ(r *rig.Rig, domain verbs.XRCD) verbs.SRQ {
	return r.CreateSRQ(verbs.SRQInit{PD: r.PD, Type: verbs.SRQXRC, MaxWR: 8, MaxSGE: 1, XRCD: domain, CQ: r.CQ})
}
