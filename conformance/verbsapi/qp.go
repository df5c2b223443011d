package verbsapi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// mustUnlessNoMemory fails the case if err, of the creation of an object at a limit of the device,
// is neither nil nor ErrNoMemory. ibv_query_device(3) allows the latter: the host may lack memory.
func mustUnlessNoMemory(r *rig.Rig, what string, err error) {
	if errors.Is(err, verbs.ErrNoMemory) {
		r.Note("the device's host has no memory for %s", what)
		return
	}
	r.Must(what, err)
}

var qpCases = []conformance.Case{{
	ID: "verbs/qp/sizes-at-least-as-asked", Cite: cite("ibv_create_qp(3)", "verbs/qp/1"),
	Title:   "A new queue pair has at least the requested capacities, the requested type, and state RESET",
	Expects: "at least the requested sends, receives, list entries and inline bytes",
	Defects: []string{"CapsShort", "ResetReadsInit"}, Run: rig.Body(func(r *rig.Rig) {
		limit := r.QueryDevice()
		requested := verbs.QPCaps{
			MaxSendWR: min(33, limit.MaxQPWR), MaxRecvWR: min(21, limit.MaxQPWR),
			MaxSendSGE: min(3, limit.MaxSGE), MaxRecvSGE: min(2, limit.MaxSGE), MaxInline: min(28, limit.MaxInline),
		}
		qp := r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: requested})
		a := r.QueryQP(qp)
		got := a.Caps
		r.Check(got.MaxSendWR >= requested.MaxSendWR && got.MaxRecvWR >= requested.MaxRecvWR && got.MaxSendSGE >= requested.MaxSendSGE &&
			got.MaxRecvSGE >= requested.MaxRecvSGE && got.MaxInline >= requested.MaxInline, fmt.Sprintf("%+v or more", requested), "%+v", got)
		r.Check(qp.Type() == rig.DefaultQPType(r), rig.DefaultQPType(r).String(), "%v", qp.Type())
		r.Check(a.State == verbs.QPStateReset, "a new queue pair in RESET", "%v", a.State)
	}),
}, {
	ID: "verbs/qp/sizes-within-the-limits", Cite: cite("ibv_create_qp(3)", "verbs/qp/2"),
	Title:   "A queue pair with capacities beyond the device's limits is refused, and one at the limits is not",
	Expects: "queue pairs with as many requests, receives, list entries and inline bytes as the device claims, if there is memory for them; a refusal of one more",
	Defects: []string{"CapsUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		limit := r.QueryDevice()
		try := func(change func(*verbs.QPCaps)) error {
			caps := verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
			change(&caps)
			qp, err := r.Device.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: caps})
			if err == nil {
				r.Must("a queue pair that can be closed", qp.Close())
			}
			return err
		}
		for _, f := range []struct {
			what  string
			limit int
			field func(*verbs.QPCaps) *int
		}{
			{"sends", limit.MaxQPWR, func(c *verbs.QPCaps) *int { return &c.MaxSendWR }},
			{"receives", limit.MaxQPWR, func(c *verbs.QPCaps) *int { return &c.MaxRecvWR }},
			{"entries a send", limit.MaxSGE, func(c *verbs.QPCaps) *int { return &c.MaxSendSGE }},
			{"entries a receive", limit.MaxSGE, func(c *verbs.QPCaps) *int { return &c.MaxRecvSGE }},
			{"inline bytes", limit.MaxInline, func(c *verbs.QPCaps) *int { return &c.MaxInline }},
		} {
			mustUnlessNoMemory(r, fmt.Sprintf("a queue pair with %d %s", f.limit, f.what), try(func(c *verbs.QPCaps) { *f.field(c) = f.limit }))
			r.MustFail(fmt.Sprintf("a queue pair with %d %s", f.limit+1, f.what), try(func(c *verbs.QPCaps) { *f.field(c) = f.limit + 1 }), nil)
		}
	}),
}, {
	ID: "verbs/qp/needs-domain-and-queues", Cite: cite("ibv_create_qp(3)", "verbs/qp/3"),
	Title:   "A queue pair without a domain or without a completion queue is refused",
	Expects: "a refusal of a queue pair without each of them; and of an XRC initiator, if supported, without a completion queue",
	Defects: []string{"ObjectsUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		good := verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps}
		for _, k := range []struct {
			what    string
			without func(*verbs.QPInit)
		}{
			{"a domain", func(i *verbs.QPInit) { i.PD = nil }},
			{"a CQ to send", func(i *verbs.QPInit) { i.SendCQ = nil }},
			{"a CQ to receive", func(i *verbs.QPInit) { i.RecvCQ = nil }},
		} {
			init := good
			k.without(&init)
			r.MustFail("a queue pair without "+k.what, errorOf(r.Device.CreateQP(init)), nil)
		}
		if r.Caps.Has(verbs.CapXRC) {
			r.MustFail("an XRC initiator without a CQ to send", errorOf(r.Device.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCSend, PD: r.PD, Caps: smallCaps})), nil)
		}
	}),
}, {
	ID: "verbs/qp/objects-of-its-own-device", Cite: cite("ibv_create_qp(3)", "verbs/qp/4"),
	Title:   "A queue pair cannot use objects of another device",
	Expects: "a refusal of a domain, a completion queue and a shared receive queue of the partner; and of its domain for a shared receive queue, and of its channel for a completion queue",
	Defects: []string{"ObjectsUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		partner := rig.NewPair(r).Partner
		good := verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps}
		try := func(what string, foreign func(*verbs.QPInit)) {
			init := good
			foreign(&init)
			r.MustFail("a queue pair with "+what+" of another device", errorOf(r.Device.CreateQP(init)), nil)
		}
		try("a domain", func(i *verbs.QPInit) { i.PD = partner.PD })
		try("a CQ to send", func(i *verbs.QPInit) { i.SendCQ = partner.CQ })
		try("a CQ to receive", func(i *verbs.QPInit) { i.RecvCQ = partner.CQ })
		if r.Caps.Has(verbs.CapSRQ) {
			srq := partner.CreateSRQ(srqInit(partner))
			try("a shared receive queue", func(i *verbs.QPInit) { i.SRQ = srq })
			r.MustFail("a shared receive queue with a domain of another device", errorOf(r.Device.CreateSRQ(srqInit(partner))), nil)
		}
		r.MustFail("a completion queue with a channel of another device", errorOf(r.Device.CreateCQ(verbs.CQInit{Depth: 4, Channel: newChannel(partner)})), nil)
	}),
}, {
	ID: "verbs/qp/numbers-of-their-own", Cite: cite("ibv_create_qp(3)", "verbs/qp/5"),
	Title:   "Every queue pair has a different QPN of 24 bits",
	Expects: "64 different QPNs, none of them 0, 1 or 0xffffff over InfiniBand",
	Defects: []string{"QPNsRepeat"}, Run: rig.Body(func(r *rig.Rig) {
		seen, least, most := make(map[verbs.QPN]bool), verbs.QPN(0), verbs.MulticastQPN
		if isIB(r) {
			least, most = 2, verbs.MulticastQPN-1
		}
		for range 64 {
			n := newDefaultQP(r).QPN()
			r.Check(!seen[n] && n >= least && n <= most, fmt.Sprintf("another QPN between %d and %#x", least, uint32(most)), "%#x", uint32(n))
			seen[n] = true
		}
	}),
}, {
	ID:   "verbs/qp/receives-of-a-shared-queue-are-posted-there",
	Cite: cite("ibv_post_recv(3)", "verbs/qp/6"), Needs: verbs.CapSRQ,
	Title:   "Posting a receive to a queue pair with a shared receive queue fails",
	Expects: "a receive posted to the queue pair is refused",
	Defects: []string{"SRQBypassed", "SRQUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		qp := r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps, SRQ: r.CreateSRQ(srqInit(r))})
		r.ToInit(qp, 0, qKey)
		m := r.Memory(64, verbs.AccessLocalWrite)
		expectRecvRefused(r, "a receive to a queue pair on a shared receive queue", qp, m.SGL(0, 64), nil)
	}),
}, {
	ID:   "verbs/qp/busy-in-a-multicast-group",
	Cite: cite("ibv_destroy_qp(3)", "verbs/qp/7"), Needs: verbs.CapUD | verbs.CapMulticast,
	Title:   "A queue pair cannot be closed while it is in a multicast group",
	Expects: "EBUSY, until it has left the group; a group that it is not in cannot be left",
	Defects: []string{"BusyClosed", "InUseDestroyed"}, Run: rig.Body(func(r *rig.Rig) {
		qp := r.CreateQP(verbs.QPInit{Type: verbs.QPTypeUD, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps})
		r.ToInit(qp, 0, qKey)
		r.ToRTR(qp, verbs.QPAttr{})
		r.ToRTS(qp, verbs.QPAttr{SQPSN: 0x2000})
		group := verbs.GID{0: 0xff, 1: 0x0e, 15: 0x42}
		if r.Local[0].Is4() {
			group = verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}
		}
		r.Must("a queue pair that can join a group", qp.AttachMulticast(group))
		r.MustFail("closing a queue pair in a group", qp.Close(), verbs.ErrBusy)
		r.Must("a queue pair that can leave the group", qp.DetachMulticast(group))
		r.MustFail("leaving a group twice", qp.DetachMulticast(group), nil)
		r.Must("a queue pair in no group that can be closed", qp.Close())
	}),
}, {
	ID: "verbs/qp/closed-with-work-outstanding", Cite: cite("ibv_destroy_qp(3)", "verbs/qp/8"),
	Title:   "A queue pair can be closed with work outstanding, and its memory and CQ afterwards",
	Sends:   "receives without messages",
	Expects: "the queue pair, then its memory and its completion queue can be closed",
	Defects: []string{"BusyQPStays"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 16, nil)
		l := newPair(rig.NewPair(r), setup{modifyInit: func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ = cq, cq }})
		m := r.Memory(64, verbs.AccessLocalWrite)
		r.PostRecv(l.dut.qp, 1, m.SGE(0, 64))
		r.PostRecv(l.dut.qp, 2, m.SGE(0, 64))
		r.Must("a queue pair with receives outstanding that can be closed", l.dut.qp.Close())
		r.Must("memory that can be closed", m.Close())
		r.Must("a completion queue that can be closed", cq.Close())
	}),
}, {
	ID: "verbs/qp/reset-empties-the-queues", Cite: cite("ibv_modify_qp(3)", "verbs/qp/9"),
	Title:   "RESET discards posted work without a completion, and the queues are empty afterwards",
	Sends:   "as many receives as fit, RESET, INIT, and as many again",
	Expects: "no completion for those before; room for all of those after, and only these are flushed",
	Defects: []string{"ResetFlushes"}, Run: rig.Body(func(r *rig.Rig) {
		qp, m := newDefaultQP(r), r.Memory(64, verbs.AccessLocalWrite)
		room := r.QueryQP(qp).Caps.MaxRecvWR
		for round := range 2 {
			r.ToInit(qp, 0, qKey)
			for i := range room {
				r.PostRecv(qp, uint64(1+1000*round+i), m.SGE(0, 64))
			}
			if round == 0 {
				r.ToState(qp, verbs.QPStateReset)
			}
		}
		r.ToState(qp, verbs.QPStateErr)
		checkOrder(r, pollCompletions(r, r.CQ, room, 64), 1001, verbs.WCWRFlushErr)
		expectEmptyCQ(r, r.CQ)
	}),
}}
