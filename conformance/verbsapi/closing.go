package verbsapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// verbCall is a verb of an object, by name.
type verbCall struct {
	name string
	call func() error
}

// closingCases test verbs on closed objects.
var closingCases = []conformance.Case{
	closedObjectCase("pd", "protection domain", 0, func(r *rig.Rig) (closer, []verbCall) {
		pd := otherPD(r)
		all := []verbCall{{"reg_mr", func() error { _, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)}); return err }}}
		if r.Caps.Has(verbs.CapMWType2) {
			all = append(all, verbCall{"alloc_mw", func() error { _, err := pd.AllocMW(verbs.MWType2); return err }})
		}
		if r.Caps.Has(verbs.CapUD) {
			all = append(all, verbCall{"create_ah", func() error { _, err := pd.CreateAH(r.PathTo(r)); return err }})
		}
		return pd, all
	}),
	closedObjectCase("cq", "completion queue", 0, func(r *rig.Rig) (closer, []verbCall) {
		cq := newCQ(r, 8, newChannel(r))
		return cq, []verbCall{
			{"poll_cq", func() error { _, err := cq.Poll(make([]verbs.WC, 1)); return err }},
			{"req_notify_cq", func() error { return cq.ReqNotify(false) }},
		}
	}),
	closedObjectCase("channel", "completion channel", 0, func(r *rig.Rig) (closer, []verbCall) {
		ch := newChannel(r)
		return ch, []verbCall{
			{"get_cq_event", func() error { _, err := ch.Wait(time.Second); return err }},
			{"create_cq", func() error { _, err := r.Device.CreateCQ(verbs.CQInit{Depth: 8, Channel: ch}); return err }},
		}
	}),
	closedObjectCase("srq", "shared receive queue", verbs.CapSRQ, func(r *rig.Rig) (closer, []verbCall) {
		srq, m := newSRQ(r, srqInit(r)), r.Memory(64, verbs.AccessLocalWrite)
		return srq, []verbCall{
			{"post_srq_recv", func() error { _, err := srq.PostRecv([]verbs.RecvWR{{SGL: m.SGL(0, 64)}}); return err }},
			{"modify_srq", func() error { return srq.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit) }},
			{"query_srq", func() error { _, err := srq.Query(); return err }},
		}
	}),
	closedObjectCase("qp", "queue pair", 0, func(r *rig.Rig) (closer, []verbCall) {
		qp, m := newDefaultQP(r), r.Memory(64, verbs.AccessLocalWrite)
		r.ToInit(qp, 0, qKey)
		return qp, []verbCall{
			{"modify_qp", func() error { return qp.Modify(verbs.QPAttr{State: errState}, verbs.QPAttrState) }},
			{"query_qp", func() error { _, err := qp.Query(); return err }},
			{"post_recv", func() error { _, err := qp.PostRecv([]verbs.RecvWR{{SGL: m.SGL(0, 64)}}); return err }},
			{"post_send", func() error {
				_, err := qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: m.SGL(0, 8)}})
				return err
			}},
		}
	}),
	closedObjectCase("mr", "memory region", 0, func(r *rig.Rig) (closer, []verbCall) { return r.Memory(64, 0), nil }),
	closedObjectCase("mw", "memory window", verbs.CapMWType2, func(r *rig.Rig) (closer, []verbCall) {
		mw, err := r.PD.AllocMW(verbs.MWType2)
		r.Must("a window", err)
		return mw, nil
	}),
	closedObjectCase("ah", "address handle", verbs.CapUD, func(r *rig.Rig) (closer, []verbCall) {
		ah, err := r.PD.CreateAH(r.PathTo(r))
		r.Must("an address handle", err)
		return ah, nil
	}),
	closedObjectCase("xrcd", "XRC domain", verbs.CapXRC, func(r *rig.Rig) (closer, []verbCall) {
		d := xrcDomain(r)
		return d, []verbCall{
			{"create_qp", func() error {
				_, err := r.Device.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: d})
				return err
			}},
			{"open_qp", func() error { _, err := r.Device.OpenQP(d, 77); return err }},
		}
	}),
	closedObjectCase("listener", "listener", verbs.CapCM, func(r *rig.Rig) (closer, []verbCall) {
		l := listen(r)
		return l, []verbCall{{"get_cm_event", func() error { _, err := l.GetRequest(time.Second); return err }}}
	}),
	{
		ID: "verbs/close/device-closes-everything", Cite: manual(packageVerbs, "verbs/close/2"),
		Title:   "Closing a device closes all its objects: every verb returns ErrClosed",
		Sends:   "nothing",
		Expects: "ErrClosed from the verbs of the device, and of its protection domain, completion queue, channel and queue pair",
		Defects: []string{"DeviceCloseShallow"}, Run: rig.Body(func(r *rig.Rig) {
			ch, qp := newChannel(r), newDefaultQP(r)
			r.Must("a device that can be closed", r.Device.Close())
			for _, v := range []verbCall{
				{"alloc_pd", func() error { _, err := r.Device.AllocPD(); return err }},
				{"create_comp_channel", func() error { _, err := r.Device.CreateCompChannel(); return err }},
				{"create_cq", func() error { _, err := r.Device.CreateCQ(verbs.CQInit{Depth: 8}); return err }},
				{"create_qp", func() error { _, err := r.Device.CreateQP(verbs.QPInit{Type: qp.Type(), PD: r.PD}); return err }},
				{"get_async_event", func() error { _, err := r.Device.WaitAsync(time.Second); return err }},
				{"reg_mr", func() error { _, err := r.PD.RegMR(verbs.MRInit{Buf: make([]byte, 8)}); return err }},
				{"poll_cq", func() error { _, err := r.CQ.Poll(make([]verbs.WC, 1)); return err }},
				{"get_cq_event", func() error { _, err := ch.Wait(time.Second); return err }},
				{"query_qp", func() error { _, err := qp.Query(); return err }},
				{"modify_qp", func() error { return qp.Modify(verbs.QPAttr{State: reset}, verbs.QPAttrState) }},
			} {
				r.MustFail(v.name+" after the device was closed", v.call(), verbs.ErrClosed)
			}
		}),
	},
	{
		ID: "verbs/close/device-answers-no-queries", Cite: manual(packageVerbs, "verbs/close/2"),
		Title:   "A closed device answers no queries",
		Sends:   "nothing",
		Expects: "ErrClosed from every query",
		Defects: []string{"DeviceCloseShallow"}, Run: rig.Body(func(r *rig.Rig) {
			r.Must("a device that can be closed", r.Device.Close())
			for _, v := range []verbCall{
				{"query_port", func() error { _, err := r.Device.QueryPort(1); return err }},
				{"query_pkey", func() error { _, err := r.Device.QueryPKey(1, 0); return err }},
				{"query_gid", func() error { _, err := r.Device.QueryGID(1, 0); return err }},
				{"query_device", func() error { _, err := r.Device.QueryDevice(); return err }},
			} {
				r.MustFail(v.name+" after the device was closed", v.call(), verbs.ErrClosed)
			}
		}),
	},
	{
		ID: "verbs/close/device-ends-waits", Cite: manual(packageVerbs, "verbs/close/3"),
		Title:   "Closing a device ends the waits for its events",
		Sends:   "tasks that wait for ever, for an asynchronous event and for a completion event; the device is closed meanwhile",
		Expects: "both waits end with ErrClosed",
		Defects: []string{"CloseLeavesWaiting"}, Run: rig.Body(func(r *rig.Rig) {
			ch := newChannel(r)
			waits := []conformance.Task{
				r.Go("wait for an asynchronous event", func() error { _, err := r.Device.WaitAsync(verbs.Forever); return err }),
				r.Go("wait for a completion event", func() error { _, err := ch.Wait(verbs.Forever); return err }),
			}
			r.Sleep(shortWait)
			r.Must("a device that can be closed", r.Device.Close())
			for _, w := range waits {
				err := w.Wait(r.ResponseTimeout())
				r.Check(errors.Is(err, verbs.ErrClosed), "a wait that ends with ErrClosed", "%v", err)
			}
		}),
	},
	{
		ID: "verbs/close/closed-objects-do-not-count", Cite: manual(packageVerbs, "verbs/close/4"),
		Title:   "Closed objects do not count: a device creates objects again, however many there were before",
		Sends:   "600 rounds: create and close a protection domain, region, channel, completion queue and queue pair",
		Expects: "all of them",
		Defects: []string{"ClosedCount"}, Run: rig.Body(func(r *rig.Rig) {
			for i := range 600 {
				pd, ch := otherPD(r), newChannel(r)
				cq := newCQ(r, 4, ch)
				mr := r.MemoryIn(pd, 16, 0)
				qp := newQP(r, verbs.QPInit{Type: defaultQPType(r), PD: pd, SendCQ: cq, RecvCQ: cq, Caps: smallCaps})
				for _, c := range []closer{qp, mr, cq, ch, pd} {
					r.Must(fmt.Sprintf("objects that can be closed, in round %d", i+1), c.Close())
				}
			}
		}),
	},
}

// closedObjectCase returns a case about a closed object. create returns the object and
// its verbs.
func closedObjectCase(name, what string, needs verbs.Caps, create func(*rig.Rig) (closer, []verbCall)) conformance.Case {
	defects := []string{"ClosesTwice"}
	expects := "ErrClosed from a second close"
	if name != "mr" && name != "mw" && name != "ah" {
		defects = append(defects, "ClosedAnswers")
		expects = "ErrClosed from each of its verbs, and from a second close"
	}
	return conformance.Case{
		ID:    "verbs/close/" + name,
		Title: fmt.Sprintf("All verbs of a closed %s return ErrClosed", what),
		Cite:  manual(packageVerbs, "verbs/close/1"), Needs: needs, Defects: defects,
		Sends:   "nothing",
		Expects: expects,
		Run: rig.Body(func(r *rig.Rig) {
			object, verbsOf := create(r)
			r.Must("a "+what+" that can be closed", object.Close())
			for _, v := range verbsOf {
				r.MustFail(v.name+" of a closed "+what, v.call(), verbs.ErrClosed)
			}
			r.MustFail("closing a closed "+what, object.Close(), verbs.ErrClosed)
		}),
	}
}
