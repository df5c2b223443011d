package verbsapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// qpService is a queue pair type for which transition cases are generated.
type qpService struct {
	name  string
	kind  verbs.QPType
	needs verbs.Caps
}

var services = []qpService{
	{"rc", verbs.QPTypeRC, verbs.CapRC},
	{"uc", verbs.QPTypeUC, verbs.CapUC},
	{"ud", verbs.QPTypeUD, verbs.CapUD},
	{"xrc-send", verbs.QPTypeXRCSend, verbs.CapXRC},
	{"xrc-recv", verbs.QPTypeXRCRecv, verbs.CapXRC},
}

// transitionCases has a case for every transition of every queue pair type, and cases for each type
// about all other transitions.
var transitionCases = func() (cases []conformance.Case) {
	for _, s := range services {
		cases = append(cases, transitionCasesOf(s)...)
	}
	return append(cases, settingCases...)
}()

// transitionCasesOf returns the transition cases of a queue pair type. Connected types are tested
// over InfiniBand only: those of iWARP are connected by the connection manager.
func transitionCasesOf(s qpService) []conformance.Case {
	service, _, _ := strings.Cut(s.name, "-") // "xrc" of "xrc-send"
	label := []string{"service:" + service}
	transitions := rig.Transitions(s.kind)
	cases := make([]conformance.Case, 0, len(transitions)+3)
	for _, t := range transitions {
		cases = append(cases, conformance.Case{
			ID:    "verbs/modify/" + s.name + "-" + stateID(t.From) + "-to-" + stateID(t.To),
			Title: fmt.Sprintf("%s: %v to %v accepts its required and optional attributes, and refuses everything else", strings.ToUpper(s.name), t.From, t.To),
			Cite:  cite("ibv_modify_qp(3)", "verbs/modify/1"), Needs: s.needs, Labels: label, Defects: defectsOf(t),
			Expects: "a refusal without each required attribute and with each that is neither required nor optional, with the state unchanged; success with the required ones, alone and with each optional one but those of an alternate path",
			Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkTransition(t) }),
		})
	}
	if s.kind != verbs.QPTypeUD {
		cases = append(cases, conformance.Case{
			ID:    "verbs/modify/" + s.name + "-alternate-path",
			Title: strings.ToUpper(s.name) + ": every transition with an optional alternate path accepts one",
			Cite:  cite("ibv_modify_qp(3)", "verbs/modify/1"), Needs: s.needs | verbs.CapAutoMigration, Labels: label,
			Defects: []string{"OptionalAttrsRefused"},
			Expects: "for each such transition: success with an alternate path, with an armed one, and with all other optional attributes; the requested state",
			Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkAltPaths() }),
		})
	}
	return append(cases, conformance.Case{
		ID:    "verbs/modify/" + s.name + "-no-other-ways",
		Title: strings.ToUpper(s.name) + ": every transition that is not in the table is refused",
		Cite:  cite("ibv_modify_qp(3)", "verbs/modify/2"), Needs: s.needs, Labels: label, Defects: []string{"ModifyLies"},
		Expects: "a refusal of each pair of states that is no transition, and the state unchanged",
		Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkOtherTransitions() }),
	}, conformance.Case{
		ID:    "verbs/modify/" + s.name + "-to-error-and-back",
		Title: strings.ToUpper(s.name) + ": a queue pair can go from every state to RESET and, except from RESET, to ERR",
		Cite:  cite("ibv_modify_qp(3)", "verbs/modify/3"), Needs: s.needs, Labels: label, Defects: []string{"ErrorIsFinal"},
		Expects: "the requested state; then RESET to INIT succeeds",
		Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkErrAndReset() }),
	})
}

// stateID returns the name of a state in case IDs.
func stateID(s verbs.QPState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "IBV_QPS_"))
}

// defectsOf returns the defects that a transition case detects: with ModifyLies a refused modify
// reports success, with RefusalKills it moves the queue pair to ERR, and with OptionalAttrsRefused
// the device refuses optional attributes.
func defectsOf(t rig.Transition) []string {
	defects := []string{"ModifyLies"}
	if t.Required != 0 {
		defects = append(defects, "RefusalKills")
	}
	if t.Optional != 0 {
		defects = append(defects, "OptionalAttrsRefused")
	}
	return defects
}

// checkTransition fails the case unless a transition succeeds with its required and optional
// attributes, and fails without a required one or with any other but m.unspecified, which a device
// may accept or refuse.
func (m *qpMover) checkTransition(t rig.Transition) {
	what := t.String()
	qp := m.newQPIn(t.From)
	rig.EachAttr(t.Required, func(missing verbs.QPAttrMask) {
		m.MustFail(fmt.Sprintf("%s without %v", what, missing), m.modify(qp, t.From, t.To, t.Required&^missing), verbs.ErrInvalid)
		m.ExpectState(qp, t.From)
	})
	rig.EachAttr(rig.EveryAttr&^(t.Required|t.Optional|m.unspecified), func(extra verbs.QPAttrMask) {
		m.MustFail(fmt.Sprintf("%s with %v", what, extra), m.modify(qp, t.From, t.To, t.Required|extra), verbs.ErrInvalid)
		m.ExpectState(qp, t.From)
	})
	m.Must(what, m.modify(qp, t.From, t.To, t.Required))
	m.ExpectState(qp, t.To)
	rig.EachAttr(t.Optional&^rig.MigrationAttrs, func(extra verbs.QPAttrMask) { m.expectTransition(t, extra) })
}

// expectTransition fails the case unless a new queue pair accepts a transition with its required
// attributes and extra.
func (m *qpMover) expectTransition(t rig.Transition, extra verbs.QPAttrMask) {
	qp := m.newQPIn(t.From)
	m.Must(fmt.Sprintf("%v to %v with %v", t.From, t.To, extra), m.modify(qp, t.From, t.To, t.Required|extra))
	m.ExpectState(qp, t.To)
	m.Must("a queue pair that can be closed", qp.Close())
}

// checkAltPaths fails the case unless transitions with an optional alternate path accept one:
// alone, with the migration state, which arms it, and with all optional attributes.
func (m *qpMover) checkAltPaths() {
	for _, t := range rig.Transitions(m.kind) {
		switch t.Optional & rig.MigrationAttrs {
		case rig.MigrationAttrs:
			m.expectTransition(t, rig.MigrationAttrs)
			fallthrough
		case verbs.QPAttrAltPath:
			m.expectTransition(t, verbs.QPAttrAltPath)
			m.expectTransition(t, t.Optional)
		}
	}
}

// checkOtherTransitions fails the case unless the device refuses every pair of states that is no
// transition. Pairs that begin with SQE are left out: a queue pair enters SQE by a failure only.
func (m *qpMover) checkOtherTransitions() {
	for _, from := range everyState {
		if from == sqe {
			continue
		}
		qp := m.newQPIn(from)
		for _, to := range everyState {
			if rig.HasTransition(m.kind, from, to) {
				continue
			}
			m.MustFail(fmt.Sprintf("%v to %v", from, to), m.modify(qp, from, to, 0), verbs.ErrInvalid)
			m.ExpectState(qp, from)
		}
	}
}

// checkErrAndReset fails the case unless queue pairs can be moved from INIT, RTR, RTS, SQD and ERR
// to ERR and to RESET, and from RESET to INIT and to RESET.
func (m *qpMover) checkErrAndReset() {
	for _, from := range []verbs.QPState{initState, rtr, rts, sqd, errState} {
		qp := m.newQPIn(from)
		m.ToState(qp, errState)
		m.ExpectState(qp, errState)
		m.ToState(qp, reset)
		m.ExpectState(qp, reset)
		m.ToInit(qp, 0, qKey)
		qp = m.newQPIn(from)
		m.ToState(qp, reset)
		m.ExpectState(qp, reset)
		m.ToState(qp, reset) // from RESET
	}
}

const (
	reset, initState, rtr, rts = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS
	sqd, sqe, errState         = verbs.QPStateSQD, verbs.QPStateSQE, verbs.QPStateErr
)

// everyState lists the states in the order in which a queue pair passes them.
var everyState = []verbs.QPState{reset, initState, rtr, rts, sqd, sqe, errState}

// qpMover tests the state transitions of a queue pair type.
type qpMover struct {
	*rig.Rig
	kind verbs.QPType
	// unspecified are attributes that a device may accept or refuse: those of path migration if it
	// does not claim that.
	unspecified verbs.QPAttrMask
	domain      verbs.XRCD // of XRC targets
}

// newQPMover returns a qpMover for a type, with a domain for XRC targets. It ends the case as
// unsupported if queue pairs of the type cannot be connected by ibv_modify_qp.
func newQPMover(r *rig.Rig, kind verbs.QPType) *qpMover {
	m := &qpMover{Rig: r, kind: kind}
	if kind != verbs.QPTypeUD {
		requireModifyConnect(r)
	}
	if kind == verbs.QPTypeXRCRecv {
		m.domain = xrcDomain(r)
	}
	if !r.Caps.Has(verbs.CapAutoMigration) {
		m.unspecified = rig.MigrationAttrs
	}
	return m
}

// attr returns valid values of all attributes for a transition.
func (m *qpMover) attr(from, to verbs.QPState) verbs.QPAttr {
	path := m.PathTo(m.Rig)
	return verbs.QPAttr{
		State: to, CurState: from, Port: 1, QKey: qKey, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
		AH: path, PathMTU: verbs.MTU512, DestQPN: 0x345, RQPSN: 0x111111, SQPSN: 0x222222,
		MaxDestRdAtomic: 3, MinRNRTimer: 9, Timeout: 11, RetryCnt: 5, RNRRetry: 4, MaxRdAtomic: 2,
		AltAH: path, AltPort: 1, PathMigState: verbs.MigRearm, Caps: smallCaps,
	}
}

// modify tries a transition with the attributes of mask and the state.
func (m *qpMover) modify(qp verbs.QP, from, to verbs.QPState, mask verbs.QPAttrMask) error {
	return qp.Modify(m.attr(from, to), mask|verbs.QPAttrState)
}

// newQPIn moves a new queue pair to a state: to ERR from INIT, and to others by [rig.Transitions],
// which are in the order in which a queue pair makes them.
func (m *qpMover) newQPIn(state verbs.QPState) verbs.QP {
	init := verbs.QPInit{Type: m.kind, PD: m.PD, SendCQ: m.CQ, RecvCQ: m.CQ, Caps: smallCaps}
	switch m.kind {
	case verbs.QPTypeXRCSend:
		init.RecvCQ, init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = nil, 0, 0
	case verbs.QPTypeXRCRecv:
		init = verbs.QPInit{Type: m.kind, XRCD: m.domain}
	}
	qp := m.Rig.CreateQP(init)
	current := reset
	for _, t := range rig.Transitions(m.kind) {
		switch {
		case current == state:
			return qp
		case state == errState && current == initState:
			m.ToState(qp, errState)
			return qp
		case t.From == current && t.To != current:
			m.Must(fmt.Sprintf("%v to %v", current, t.To), m.modify(qp, current, t.To, t.Required))
			if current = t.To; current == sqd {
				m.awaitDrained(qp)
			}
		}
	}
	return qp
}

// awaitDrained waits until an idle queue pair in SQD has drained, for 100 ms at most: before that
// it cannot be modified. Other cases check the draining state.
func (m *qpMover) awaitDrained(qp verbs.QP) {
	const step = time.Millisecond
	for left := 100 * step; left > 0 && m.QueryQP(qp).SQDraining; left -= step {
		m.Sleep(step)
	}
}
