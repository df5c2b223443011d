package verbsapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// service of queue pairs, as the cases of transitions are generated for.
type serviceOf struct {
	name  string
	kind  verbs.QPType
	needs verbs.Caps
}

var services = []serviceOf{
	{"rc", verbs.QPTypeRC, verbs.CapRC}, {"uc", verbs.QPTypeUC, verbs.CapUC}, {"ud", verbs.QPTypeUD, verbs.CapUD},
}

// transitionCases has a case for every way of every service, and for those that are
// none.
var transitionCases = slices.Concat(waysOf(services[0]), waysOf(services[1]), waysOf(services[2]), setCases)

// waysOf are the cases of the ways of a service. The connected ones are brought up by
// hand only over InfiniBand's transport: iWARP's become ready by the connection
// manager.
func waysOf(s serviceOf) []conformance.Case {
	label := []string{"service:" + s.name}
	ways := forward(s.kind)
	cases := make([]conformance.Case, 0, len(ways)+2)
	for _, t := range ways {
		cases = append(cases, conformance.Case{
			ID:    "verbs/modify/" + s.name + "-" + short(t.from) + "-to-" + short(t.to),
			Title: fmt.Sprintf("%s: %v to %v takes what it must have and may have, and refuses everything else", strings.ToUpper(s.name), t.from, t.to),
			Cite:  manual("ibv_modify_qp(3)", "verbs/modify/1"), Level: conformance.Must, Needs: s.needs, Labels: label,
			Sends:   "nothing",
			Expects: "a refusal without each attribute that is demanded, and with each that is neither demanded nor optional, and the state as before; success with those demanded, alone and with each optional one",
			Mutants: mutantsOf(t),
			Run:     rig.Straight(func(r *rig.Rig) { newMover(r, s.kind).way(t) }),
		})
	}
	return append(cases, conformance.Case{
		ID:    "verbs/modify/" + s.name + "-no-other-ways",
		Title: strings.ToUpper(s.name) + ": every change of state that is not in the table is refused",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/2"), Level: conformance.Must, Needs: s.needs, Labels: label,
		Sends:   "nothing",
		Expects: "a refusal of each pair of states that is no way, with the state alone, and the state as before",
		Mutants: []string{"ModifyLies"},
		Run:     rig.Straight(func(r *rig.Rig) { newMover(r, s.kind).noOtherWays() }),
	}, conformance.Case{
		ID:    "verbs/modify/" + s.name + "-to-error-and-back",
		Title: strings.ToUpper(s.name) + ": from every state a queue pair can be taken to RESET and, but from RESET, to ERR",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/3"), Level: conformance.Must, Needs: s.needs, Labels: label,
		Sends:   "nothing",
		Expects: "the state asked for; and a queue pair that comes up again from RESET",
		Mutants: []string{"ErrorIsFinal"},
		Run:     rig.Straight(func(r *rig.Rig) { newMover(r, s.kind).toErrorAndBack() }),
	})
}

// short is the name of a state in IDs.
func short(s verbs.QPState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "IBV_QPS_"))
}

// mutantsOf are the defects that break a way: that refusals are not made, which every
// way has, and that optional attributes are refused, where there are any.
func mutantsOf(t transition) []string {
	mutants := []string{"ModifyLies"}
	if t.must != 0 {
		mutants = append(mutants, "RefusalKills")
	}
	if t.may != 0 {
		mutants = append(mutants, "OptionalAttrsRefused")
	}
	return mutants
}

// every attribute there is, but for the state.
const everyAttr = verbs.QPAttrDestQPN<<1 - 1 - verbs.QPAttrState

// way ends the case unless a transition takes what it must and may, and nothing else.
func (m *mover) way(t transition) {
	what := fmt.Sprintf("%v to %v", t.from, t.to)
	qp := m.at(t.from)
	each(t.must, func(missing verbs.QPAttrMask) {
		m.Refuses(fmt.Sprintf("%s without %v", what, missing), m.modify(qp, t.from, t.to, t.must&^missing), verbs.ErrInvalid)
		m.StateIs(qp, t.from)
	})
	each(everyAttr&^(t.must|t.may|m.open), func(extra verbs.QPAttrMask) {
		m.Refuses(fmt.Sprintf("%s with %v", what, extra), m.modify(qp, t.from, t.to, t.must|extra), verbs.ErrInvalid)
		m.StateIs(qp, t.from)
	})
	m.Do(what, m.modify(qp, t.from, t.to, t.must))
	m.StateIs(qp, t.to)
	each(t.may&^m.open, func(extra verbs.QPAttrMask) {
		if extra == verbs.QPAttrPathMigState {
			extra |= verbs.QPAttrAltPath // there is nothing to be armed without
		}
		qp := m.at(t.from)
		m.Do(fmt.Sprintf("%s with %v", what, extra), m.modify(qp, t.from, t.to, t.must|extra))
		m.StateIs(qp, t.to)
		m.Do("a queue pair that can be closed", qp.Close())
	})
}

// noOtherWays ends the case unless every pair of states that is no way is refused.
// Nothing is brought to SQE here: that takes a failure.
func (m *mover) noOtherWays() {
	for _, from := range everyState {
		if from == sqe {
			continue
		}
		qp := m.at(from)
		for _, to := range everyState {
			if legal(m.kind, from, to) {
				continue
			}
			m.Refuses(fmt.Sprintf("%v to %v", from, to), m.modify(qp, from, to, 0), verbs.ErrInvalid)
			m.StateIs(qp, from)
		}
	}
}

// toErrorAndBack ends the case unless a queue pair can be failed and reset from
// everywhere, and comes up again.
func (m *mover) toErrorAndBack() {
	for _, from := range []verbs.QPState{start, rtr, rts, sqd, failed} {
		qp := m.at(from)
		toState(m.Rig, qp, failed)
		m.StateIs(qp, failed)
		toState(m.Rig, qp, reset)
		m.StateIs(qp, reset)
		toInit(m.Rig, qp, 0)
		qp = m.at(from)
		toState(m.Rig, qp, reset)
		m.StateIs(qp, reset)
		toState(m.Rig, qp, reset)
	}
}

var setCases = []conformance.Case{
	{
		ID:    "verbs/modify/rc-query-tells-what-was-set",
		Title: "A query tells every attribute of a connection as it was set",
		Cite:  manual("ibv_query_qp(3)", "verbs/modify/4"), Level: conformance.Must, Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Sends:   "nothing",
		Expects: "path, MTU, numbers, PSNs, timers, counts, depths, rights, port and P_Key as they were set",
		Mutants: []string{"QueryForgets"},
		Run: rig.Straight(func(r *rig.Rig) {
			m := newMover(r, verbs.QPTypeRC)
			want, got := m.attr(rtr, rts), query(r, m.at(rts))
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
	},
	{
		ID:    "verbs/modify/ud-query-tells-what-was-set",
		Title: "A query tells the key and the PSN of a datagram queue pair as they were set, and the key again when it was changed",
		Cite:  manual("ibv_query_qp(3)", "verbs/modify/4"), Level: conformance.Must, Needs: verbs.CapUD, Labels: []string{"service:ud"},
		Sends:   "nothing",
		Expects: "Q_Key, port and PSN as they were set",
		Mutants: []string{"QueryForgets"},
		Run: rig.Straight(func(r *rig.Rig) {
			m := newMover(r, verbs.QPTypeUD)
			qp := m.at(rts)
			got := query(r, qp)
			r.Check(got.QKey == qKey && got.Port == 1, fmt.Sprintf("Q_Key %#x, port 1", qKey), "%#x, %d", got.QKey, got.Port)
			r.Do("a key that can be changed", qp.Modify(verbs.QPAttr{State: rts, QKey: 0x777}, verbs.QPAttrState|verbs.QPAttrQKey))
			got = query(r, qp)
			r.Check(got.QKey == 0x777, "Q_Key 0x777", "%#x", got.QKey)
		}),
	},
	{
		ID:    "verbs/modify/values-out-of-range-refused",
		Title: "Attributes that cannot be are refused, and change nothing",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/5"), Level: conformance.Must,
		Sends:   "nothing",
		Expects: "a refusal of port 0, of a port that there is not, and of a P_Key that there is not, each on the way to INIT; the state RESET",
		Mutants: []string{"ModifyLies", "RefusalKills"},
		Run: rig.Straight(func(r *rig.Rig) {
			qp := plainQP(r)
			mask := verbs.QPAttrState | initAttrs | verbs.QPAttrAccessFlags
			if qp.Type() == verbs.QPTypeUD {
				mask = verbs.QPAttrState | initAttrs | verbs.QPAttrQKey
			}
			port := portOf(r)
			for _, bad := range []struct {
				what string
				attr verbs.QPAttr
			}{
				{"port 0", verbs.QPAttr{Port: 0}},
				{"a port behind the last", verbs.QPAttr{Port: device(r).Ports + 1}},
				{"a P_Key behind the last", verbs.QPAttr{Port: 1, PKeyIndex: uint16(port.PKeys)}},
			} {
				bad.attr.State = start
				r.Refuses("RESET to INIT with "+bad.what, qp.Modify(bad.attr, mask), verbs.ErrInvalid)
				r.StateIs(qp, reset)
			}
			toInit(r, qp, 0)
		}),
	},
	{
		ID:    "verbs/modify/path-out-of-range-refused",
		Title: "A connection with an MTU, a depth, a timer or a source that cannot be is refused, and changes nothing",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/5"), Level: conformance.Must, Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Sends:   "nothing",
		Expects: "a refusal of MTUs 0 and 6, of more reads than the device answers, of RNR timer 32 and of a source address behind the table, on the way to RTR; the state INIT",
		Mutants: []string{"ModifyLies", "RefusalKills"},
		Run: rig.Straight(func(r *rig.Rig) {
			m := newMover(r, verbs.QPTypeRC)
			qp := m.at(start)
			port := portOf(r)
			for _, bad := range []struct {
				what  string
				wrong func(*verbs.QPAttr)
			}{
				{"an MTU of 0", func(a *verbs.QPAttr) { a.PathMTU = 0 }},
				{"an MTU of 6", func(a *verbs.QPAttr) { a.PathMTU = 6 }},
				{"more reads than the device answers", func(a *verbs.QPAttr) { a.MaxDestRdAtomic = device(r).MaxQPRdAtomic + 1 }},
				{"an RNR timer of 32", func(a *verbs.QPAttr) { a.MinRNRTimer = 32 }},
				{"a source address behind the table", func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = uint8(port.GIDs) }},
			} {
				attr := m.attr(start, rtr)
				bad.wrong(&attr)
				r.Refuses("INIT to RTR with "+bad.what, qp.Modify(attr, verbs.QPAttrState|rtrAttrs|responderSide), verbs.ErrInvalid)
				r.StateIs(qp, start)
			}
			r.Do("INIT to RTR", m.modify(qp, start, rtr, rtrAttrs|responderSide))
		}),
	},
	{
		ID:    "verbs/modify/drained-is-reported",
		Title: "A queue pair that is asked to report that its sends are drained does, once it has stopped",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/6"), Level: conformance.Must,
		Sends:   "a message; then RTS to SQD with the request to be told; and SQD without it",
		Expects: "SQ_DRAINED that names the queue pair for the first, and nothing for the second",
		Mutants: []string{"AsyncEventsLost", "AsyncNamesNothing"},
		Run: onLink(setup{}, func(l *link) {
			if l.near.qp.Type() != verbs.QPTypeUD {
				needsIB(l.near.Rig, "SQD closes a connection of iWARP")
			}
			l.carries(l.near, l.far, 16)
			l.near.Do("RTS to SQD", l.near.qp.Modify(verbs.QPAttr{State: sqd, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
			e := l.near.Event(verbs.EventSQDrained)
			l.near.Check(e.QP == l.near.qp, "an event that names the queue pair", "%v", e.QP)
			l.near.Do("SQD to RTS", l.near.qp.Modify(verbs.QPAttr{State: rts}, verbs.QPAttrState))
			l.near.toState(sqd)
			l.near.Sleep(soon)
			l.near.NoEvent()
		}),
	},
	{
		ID:    "verbs/modify/connection-makes-ready",
		Title: "A queue pair whose transport needs a connection is not ready to send before there is one",
		Cite:  manual("rdma_connect(3)", "verbs/modify/7"), Level: conformance.Must, Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"},
		Sends:   "nothing: INIT to RTS by modify",
		Expects: "a refusal, and the state as before",
		Mutants: []string{"ModifyLies"},
		Run: rig.Straight(func(r *rig.Rig) {
			// Over InfiniBand's transport it is not even a way of the table; over iWARP there
			// is nothing that it could talk to.
			qp := plainQP(r)
			toInit(r, qp, 0)
			r.Refuses("INIT to RTS", qp.Modify(verbs.QPAttr{State: rts}, verbs.QPAttrState), nil)
			r.StateIs(qp, start)
			toState(r, qp, failed)
			r.StateIs(qp, failed)
		}),
	},
}
