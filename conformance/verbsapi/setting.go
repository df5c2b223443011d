package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// settingCases test attributes that are set and queried.
var settingCases = []conformance.Case{{
	ID:   "verbs/modify/rc-query-tells-what-was-set",
	Cite: cite("ibv_query_qp(3)", "verbs/modify/4"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Title:   "A query returns every attribute of a connection as it was set",
	Expects: "path, MTU, numbers, PSNs, timers, counts, depths, rights, port and P_Key as they were set",
	Defects: []string{"QueryForgets"}, Run: rig.Body(func(r *rig.Rig) {
		m := newQPMover(r, verbs.QPTypeRC)
		want, got := m.attr(rtr, rts), r.QueryQP(m.newQPIn(rts))
		for _, f := range []struct {
			what      string
			want, got any
		}{
			{"state", want.State, got.State},
			{"path_mtu", want.PathMTU, got.PathMTU},
			{"dest_qp_num", want.DestQPN, got.DestQPN},
			{"rq_psn", want.RQPSN, got.RQPSN},
			{"sq_psn", want.SQPSN, got.SQPSN},
			{"max_dest_rd_atomic", want.MaxDestRdAtomic, got.MaxDestRdAtomic},
			{"max_rd_atomic", want.MaxRdAtomic, got.MaxRdAtomic},
			{"min_rnr_timer", want.MinRNRTimer, got.MinRNRTimer},
			{"timeout", want.Timeout, got.Timeout},
			{"retry_cnt", want.RetryCnt, got.RetryCnt},
			{"rnr_retry", want.RNRRetry, got.RNRRetry},
			{"qp_access_flags", want.Access, got.Access},
			{"port_num", want.Port, got.Port},
			{"pkey_index", want.PKeyIndex, got.PKeyIndex},
			{"ah_attr", want.AH, got.AH},
		} {
			r.Check(f.want == f.got, fmt.Sprintf("%s %v", f.what, f.want), "%v", f.got)
		}
	}),
}, {
	ID:   "verbs/modify/ud-query-tells-what-was-set",
	Cite: cite("ibv_query_qp(3)", "verbs/modify/4"), Needs: verbs.CapUD, Labels: []string{"service:ud"},
	Title:   "A query returns the Q_Key and the PSN of a UD queue pair as set, and the Q_Key after a change",
	Expects: "Q_Key, port and PSN as they were set",
	Defects: []string{"QueryForgets"}, Run: rig.Body(func(r *rig.Rig) {
		m := newQPMover(r, verbs.QPTypeUD)
		qp := m.newQPIn(rts)
		got := r.QueryQP(qp)
		r.Check(got.QKey == qKey && got.Port == 1, fmt.Sprintf("Q_Key %#x, port 1", qKey), "%#x, %d", got.QKey, got.Port)
		r.Must("a key that can be changed", qp.Modify(verbs.QPAttr{State: rts, QKey: 0x777}, verbs.QPAttrState|verbs.QPAttrQKey))
		got = r.QueryQP(qp)
		r.Check(got.QKey == 0x777, "Q_Key 0x777", "%#x", got.QKey)
	}),
}, {
	ID:   "verbs/modify/rights-can-be-changed",
	Cite: cite("ibv_query_qp(3)", "verbs/modify/4"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Title:   "The access flags of a queue pair can be changed before it is connected, and a query returns them",
	Expects: "the rights as they were set on the way to INIT, then as they were set there, and port 1",
	Defects: []string{"QueryForgets", "OptionalAttrsRefused"}, Run: rig.Body(func(r *rig.Rig) {
		qp := r.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps})
		expectAccess := func(want verbs.Access) {
			got := r.QueryQP(qp)
			r.Check(got.Access == want && got.Port == 1, fmt.Sprintf("rights %#x, port 1", uint32(want)), "%#x, port %d", uint32(got.Access), got.Port)
		}
		r.ToInit(qp, verbs.AccessRemoteRead, qKey)
		expectAccess(verbs.AccessRemoteRead)
		attr := verbs.QPAttr{State: initState, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
		r.Must("rights that can be changed", qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrAccessFlags))
		expectAccess(attr.Access)
	}),
}, {
	ID: "verbs/modify/failed-can-be-reset", Cite: cite("ibv_modify_qp(3)", "verbs/modify/3"),
	Title:   "A failed queue pair can be reset, and accepts work again",
	Sends:   "nothing: INIT, ERR, RESET, INIT, a receive, and ERR",
	Expects: "each of the states; the receive flushed in the end",
	Defects: []string{"ErrorIsFinal"}, Run: rig.Body(func(r *rig.Rig) {
		qp := newDefaultQP(r)
		r.ToInit(qp, 0, qKey)
		r.ToState(qp, errState)
		r.ToState(qp, reset)
		r.ExpectState(qp, reset)
		r.ToInit(qp, 0, qKey)
		r.PostRecv(qp, 1, r.Memory(64, verbs.AccessLocalWrite).SGE(0, 64))
		r.ToState(qp, errState)
		r.ExpectCompletion(1, verbs.WCWRFlushErr)
	}),
}, {
	ID: "verbs/modify/values-out-of-range-refused", Cite: cite("ibv_modify_qp(3)", "verbs/modify/5"),
	Title:   "Invalid attributes are refused, and change nothing",
	Expects: "port 0, a port that does not exist and a P_Key that does not exist are refused in RESET to INIT; the state stays RESET",
	Defects: []string{"ModifyLies", "RefusalKills", "ValuesUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		qp := newDefaultQP(r)
		mask := verbs.QPAttrState | rig.PortAttrs | verbs.QPAttrAccessFlags
		if qp.Type() == verbs.QPTypeUD {
			mask = verbs.QPAttrState | rig.PortAttrs | verbs.QPAttrQKey
		}
		port := r.QueryPort()
		for _, bad := range []struct {
			what string
			attr verbs.QPAttr
		}{
			{"port 0", verbs.QPAttr{Port: 0}},
			{"a port after the last", verbs.QPAttr{Port: r.QueryDevice().Ports + 1}},
			{"a P_Key after the last", verbs.QPAttr{Port: 1, PKeyIndex: uint16(port.PKeys)}},
		} {
			bad.attr.State = initState
			r.MustFail("RESET to INIT with "+bad.what, qp.Modify(bad.attr, mask), verbs.ErrInvalid)
			r.ExpectState(qp, reset)
		}
		r.ToInit(qp, 0, qKey)
	}),
}, {
	ID:   "verbs/modify/path-out-of-range-refused",
	Cite: cite("ibv_modify_qp(3)", "verbs/modify/5"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Title:   "An invalid MTU, depth, timer or source index of a connection is refused, and changes nothing",
	Expects: "MTUs 0 and 6, more reads than the device supports, RNR timer 32 and a source index without an address are refused in INIT to RTR; the state stays INIT",
	Defects: []string{"ModifyLies", "RefusalKills", "ValuesUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		m := newQPMover(r, verbs.QPTypeRC)
		qp := m.newQPIn(initState)
		nowhere := unusedGIDIndex(r)
		for _, bad := range []struct {
			what  string
			wrong func(*verbs.QPAttr)
		}{
			{"an MTU of 0", func(a *verbs.QPAttr) { a.PathMTU = 0 }},
			{"an MTU of 6", func(a *verbs.QPAttr) { a.PathMTU = 6 }},
			{"more reads than the device supports", func(a *verbs.QPAttr) { a.MaxDestRdAtomic = r.QueryDevice().MaxQPRdAtomic + 1 }},
			{"an RNR timer of 32", func(a *verbs.QPAttr) { a.MinRNRTimer = 32 }},
			{"a source index without an address", func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = nowhere }},
		} {
			attr := m.attr(initState, rtr)
			bad.wrong(&attr)
			reason := verbs.ErrInvalid
			if attr.AH.GRH.SGIDIndex == nowhere {
				reason = nil // the error may also be "not found"
			}
			r.MustFail("INIT to RTR with "+bad.what, qp.Modify(attr, verbs.QPAttrState|rig.PathAttrs|rig.ResponderAttrs), reason)
			r.ExpectState(qp, initState)
		}
		r.Must("INIT to RTR", m.modify(qp, initState, rtr, rig.PathAttrs|rig.ResponderAttrs))
	}),
}, {
	ID: "verbs/modify/drained-is-reported", Cite: cite("ibv_modify_qp(3)", "verbs/modify/6"),
	Title:   "A queue pair in SQD raises SQ_DRAINED if the event was requested",
	Sends:   "a message; then RTS to SQD with the event requested, and SQD without it",
	Expects: "SQ_DRAINED that names the queue pair for the first, and nothing for the second",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing"}, Run: onPair(setup{}, func(l *qpPair) {
		if l.dut.qp.Type() != verbs.QPTypeUD {
			requireIB(l.dut.Rig, "SQD closes a connection of iWARP")
		}
		expectDelivery(l.dut, l.partner, 16)
		l.dut.Must("RTS to SQD", l.dut.qp.Modify(verbs.QPAttr{State: sqd, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
		e := l.dut.ExpectEvent(verbs.EventSQDrained)
		l.dut.Check(e.QP == l.dut.qp, "an event that names the queue pair", "%v", e.QP)
		l.dut.Must("SQD to RTS", l.dut.qp.Modify(verbs.QPAttr{State: rts}, verbs.QPAttrState))
		l.dut.ToState(l.dut.qp, sqd)
		l.dut.Sleep(shortWait)
		l.dut.ExpectNoEvent()
	}),
}, {
	ID:   "verbs/modify/connection-makes-ready",
	Cite: cite("rdma_connect(3)", "verbs/modify/7"), Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"},
	Title:   "A queue pair cannot go to RTS before it is connected",
	Sends:   "nothing: INIT to RTS by modify",
	Expects: "a refusal, and the state unchanged",
	Defects: []string{"ModifyLies"}, Run: rig.Body(func(r *rig.Rig) {
		// InfiniBand has no such transition; over iWARP there is no connection yet.
		qp := newDefaultQP(r)
		r.ToInit(qp, 0, qKey)
		r.MustFail("INIT to RTS", qp.Modify(verbs.QPAttr{State: rts}, verbs.QPAttrState), nil)
		r.ExpectState(qp, initState)
		r.ToState(qp, errState)
		r.ExpectState(qp, errState)
	}),
}}
