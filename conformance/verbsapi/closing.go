package verbsapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// verbCall is a call of a verb, and the verb's name.
type verbCall struct {
	name string
	call func() error
}

// expectClosed fails the case unless all calls return ErrClosed. Messages describe a call by the
// name of its verb and situation, as in "poll_cq after the device was closed".
func expectClosed(r *rig.Rig, situation string, calls []verbCall) {
	for _, v := range calls {
		r.MustFail(v.name+" "+situation, v.call(), verbs.ErrClosed)
	}
}

// expectCloseEndsWaits fails the case unless closing an object ends calls that wait without a
// timeout, with ErrClosed.
func expectCloseEndsWaits(r *rig.Rig, what string, object closer, waits ...func() error) {
	tasks := make([]conformance.Task, len(waits))
	for i, wait := range waits {
		tasks[i] = r.Go(fmt.Sprintf("wait %d", i+1), wait)
	}
	r.Sleep(shortWait)
	r.Must(what+" that can be closed", object.Close())
	for _, task := range tasks {
		err := task.Wait(r.ResponseTimeout())
		r.Check(errors.Is(err, verbs.ErrClosed), "a wait that ends with ErrClosed", "%v", err)
	}
}

// closingCases test verbs on closed objects.
var closingCases = []conformance.Case{
	closedObjectCase("pd", "protection domain", 0, func(r *rig.Rig) (closer, []verbCall) {
		pd := otherPD(r)
		all := []verbCall{{"reg_mr", func() error { return errorOf(pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)})) }}}
		if r.Caps.Has(verbs.CapMWType2) {
			all = append(all, verbCall{"alloc_mw", func() error { return errorOf(pd.AllocMW(verbs.MWType2)) }})
		}
		if r.Caps.Has(verbs.CapUD) {
			all = append(all, verbCall{"create_ah", func() error { return errorOf(pd.CreateAH(r.PathTo(r))) }})
		}
		return pd, all
	}),
	closedObjectCase("cq", "completion queue", 0, func(r *rig.Rig) (closer, []verbCall) {
		cq := newCQ(r, 8, newChannel(r))
		return cq, []verbCall{
			{"poll_cq", func() error { return errorOf(cq.Poll(make([]verbs.WC, 1))) }},
			{"req_notify_cq", func() error { return cq.ReqNotify(false) }},
		}
	}),
	closedObjectCase("channel", "completion channel", 0, func(r *rig.Rig) (closer, []verbCall) {
		ch := newChannel(r)
		return ch, []verbCall{
			{"get_cq_event", func() error { return errorOf(ch.Wait(time.Second)) }},
			{"create_cq", func() error { return errorOf(r.Device.CreateCQ(verbs.CQInit{Depth: 8, Channel: ch})) }},
		}
	}),
	closedObjectCase("srq", "shared receive queue", verbs.CapSRQ, func(r *rig.Rig) (closer, []verbCall) {
		srq, m := r.CreateSRQ(srqInit(r)), r.Memory(64, verbs.AccessLocalWrite)
		return srq, []verbCall{
			{"post_srq_recv", func() error { return postErrorOf(srq.PostRecv([]verbs.RecvWR{{SGL: m.SGL(0, 64)}})) }},
			{"modify_srq", func() error { return srq.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit) }},
			{"query_srq", func() error { return errorOf(srq.Query()) }},
		}
	}),
	closedObjectCase("qp", "queue pair", 0, func(r *rig.Rig) (closer, []verbCall) {
		qp, m := newDefaultQP(r), r.Memory(64, verbs.AccessLocalWrite)
		r.ToInit(qp, 0, qKey)
		return qp, []verbCall{
			{"modify_qp", func() error { return qp.Modify(verbs.QPAttr{State: errState}, verbs.QPAttrState) }},
			{"query_qp", func() error { return errorOf(qp.Query()) }},
			{"post_recv", func() error { return postErrorOf(qp.PostRecv([]verbs.RecvWR{{SGL: m.SGL(0, 64)}})) }},
			{"post_send", func() error {
				return postErrorOf(qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: m.SGL(0, 8)}}))
			}},
		}
	}),
	closedObjectCase("mr", "memory region", 0, func(r *rig.Rig) (closer, []verbCall) { return r.Memory(64, 0), nil }),
	closedObjectCase("mw", "memory window", verbs.CapMWType2, func(r *rig.Rig) (closer, []verbCall) {
		return rig.Result(r.PD.AllocMW(verbs.MWType2))(r, "a window"), nil
	}),
	closedObjectCase("ah", "address handle", verbs.CapUD, func(r *rig.Rig) (closer, []verbCall) {
		return rig.Result(r.PD.CreateAH(r.PathTo(r)))(r, "an address handle"), nil
	}),
	closedObjectCase("xrcd", "XRC domain", verbs.CapXRC, func(r *rig.Rig) (closer, []verbCall) {
		d := xrcDomain(r)
		return d, []verbCall{
			{"create_qp", func() error { return errorOf(r.Device.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: d})) }},
			{"open_qp", func() error { return errorOf(r.Device.OpenQP(d, 77)) }},
		}
	}),
	closedObjectCase("listener", "listener", verbs.CapCM, func(r *rig.Rig) (closer, []verbCall) {
		l := listen(r)
		return l, []verbCall{{"get_cm_event", func() error { return errorOf(l.GetRequest(time.Second)) }}}
	}),
	{
		ID: "verbs/close/device-closes-everything", Cite: cite(packageVerbs, "verbs/close/2"),
		Title:   "Closing a device closes all its objects: every verb returns ErrClosed",
		Expects: "ErrClosed from the verbs of the device, and of its protection domain, region, completion queue, channel and queue pair",
		Defects: []string{"DeviceCloseShallow"}, Run: rig.Body(func(r *rig.Rig) {
			ch, qp, mr := newChannel(r), newDefaultQP(r), r.Memory(64, 0)
			r.Must("a device that can be closed", r.Device.Close())
			expectClosed(r, "after the device was closed", []verbCall{
				{"alloc_pd", func() error { return errorOf(r.Device.AllocPD()) }},
				{"create_comp_channel", func() error { return errorOf(r.Device.CreateCompChannel()) }},
				{"create_cq", func() error { return errorOf(r.Device.CreateCQ(verbs.CQInit{Depth: 8})) }},
				{"create_qp", func() error { return errorOf(r.Device.CreateQP(verbs.QPInit{Type: qp.Type(), PD: r.PD})) }},
				{"get_async_event", func() error { return errorOf(r.Device.WaitAsync(time.Second)) }},
				{"reg_mr", func() error { return errorOf(r.PD.RegMR(verbs.MRInit{Buf: make([]byte, 8)})) }},
				{"poll_cq", func() error { return errorOf(r.CQ.Poll(make([]verbs.WC, 1))) }},
				{"get_cq_event", func() error { return errorOf(ch.Wait(time.Second)) }},
				{"query_qp", func() error { return errorOf(qp.Query()) }},
				{"modify_qp", func() error { return qp.Modify(verbs.QPAttr{State: reset}, verbs.QPAttrState) }},
				{"post_recv", func() error { return postErrorOf(qp.PostRecv(make([]verbs.RecvWR, 1))) }},
				{"post_send", func() error { return postErrorOf(qp.PostSend(make([]verbs.SendWR, 1))) }},
				{"resize_cq", func() error { return r.CQ.Resize(4) }},
				{"destroy_qp", qp.Close},
				{"destroy_cq", r.CQ.Close},
				{"destroy_comp_channel", ch.Close},
				{"dereg_mr", mr.Close},
				{"dealloc_pd", r.PD.Close},
			})
		}),
	},
	{
		ID: "verbs/close/device-answers-no-queries", Cite: cite(packageVerbs, "verbs/close/2"),
		Title:   "A closed device answers no queries",
		Expects: "ErrClosed from every query",
		Defects: []string{"DeviceCloseShallow"}, Run: rig.Body(func(r *rig.Rig) {
			r.Must("a device that can be closed", r.Device.Close())
			expectClosed(r, "after the device was closed", []verbCall{
				{"query_port", func() error { return errorOf(r.Device.QueryPort(1)) }},
				{"query_pkey", func() error { return errorOf(r.Device.QueryPKey(1, 0)) }},
				{"query_gid", func() error { return errorOf(r.Device.QueryGID(1, 0)) }},
				{"query_device", func() error { return errorOf(r.Device.QueryDevice()) }},
			})
		}),
	},
	{
		ID: "verbs/close/device-ends-waits", Cite: cite(packageVerbs, "verbs/close/3"),
		Title:   "Closing a device ends the waits for its events",
		Sends:   "tasks that wait for ever, for an asynchronous event and for a completion event; the device is closed meanwhile",
		Expects: "both waits end with ErrClosed",
		Defects: []string{"CloseLeavesWaiting"}, Run: rig.Body(func(r *rig.Rig) {
			ch := newChannel(r)
			expectCloseEndsWaits(r, "a device", r.Device,
				func() error { return errorOf(r.Device.WaitAsync(verbs.Forever)) },
				func() error { return errorOf(ch.Wait(verbs.Forever)) })
		}),
	},
	{
		ID: "verbs/close/closed-objects-do-not-count", Cite: cite(packageVerbs, "verbs/close/4"),
		Title:   "Closed objects do not count: a device creates objects again, however many there were before",
		Sends:   "600 rounds: create and close a protection domain, region, channel, completion queue and queue pair; and more XRC domains than the device claims",
		Expects: "all of them",
		Defects: []string{"ClosedCount"}, Run: rig.Body(func(r *rig.Rig) {
			for i := range 600 {
				pd, ch := otherPD(r), newChannel(r)
				cq := newCQ(r, 4, ch)
				mr := r.MemoryIn(pd, 16, 0)
				qp := r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: pd, SendCQ: cq, RecvCQ: cq, Caps: smallCaps})
				for _, c := range []closer{qp, mr, cq, ch, pd} {
					r.Must(fmt.Sprintf("objects that can be closed, in round %d", i+1), c.Close())
				}
			}
			if r.Caps.Has(verbs.CapXRC) {
				for range min(4096, r.QueryDevice().MaxXRCD+1) {
					r.Must("an XRC domain that can be closed", xrcDomain(r).Close())
				}
			}
		}),
	},
}

// closedObjectCase returns the case that the verbs of a closed object return ErrClosed. create
// returns the object and a call of each of its verbs but Close.
func closedObjectCase(name, what string, needs verbs.Caps, create func(*rig.Rig) (closer, []verbCall)) conformance.Case {
	defects := []string{"ClosesTwice"}
	expects := "ErrClosed from a second close"
	if name != "mr" && name != "mw" && name != "ah" { // these have no verb but Close
		defects = append(defects, "ClosedAnswers")
		expects = "ErrClosed from each of its verbs, and from a second close"
	}
	return conformance.Case{
		ID:    "verbs/close/" + name,
		Title: fmt.Sprintf("All verbs of a closed %s return ErrClosed", what),
		Cite:  cite(packageVerbs, "verbs/close/1"), Needs: needs, Defects: defects,
		Expects: expects,
		Run: rig.Body(func(r *rig.Rig) {
			object, calls := create(r)
			r.Must("a "+what+" that can be closed", object.Close())
			expectClosed(r, "of a closed "+what, calls)
			r.MustFail("closing a closed "+what, object.Close(), verbs.ErrClosed)
		}),
	}
}
