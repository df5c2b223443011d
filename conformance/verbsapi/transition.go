package verbsapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// serviceOf is a queue pair type for which transition cases are generated.
type serviceOf struct {
	name  string
	kind  verbs.QPType
	needs verbs.Caps
}

var services = []serviceOf{
	{"rc", verbs.QPTypeRC, verbs.CapRC}, {"uc", verbs.QPTypeUC, verbs.CapUC}, {"ud", verbs.QPTypeUD, verbs.CapUD},
}

// transitionCases has a case for every transition of every type, and for all others.
var transitionCases = slices.Concat(transitionCasesOf(services[0]), transitionCasesOf(services[1]), transitionCasesOf(services[2]), settingCases)

// transitionCasesOf returns the transition cases of a queue pair type. Connected types
// are tested over InfiniBand only: the connection manager moves those of iWARP.
func transitionCasesOf(s serviceOf) []conformance.Case {
	label := []string{"service:" + s.name}
	ways := rig.Transitions(s.kind)
	cases := make([]conformance.Case, 0, len(ways)+3)
	for _, t := range ways {
		cases = append(cases, conformance.Case{
			ID:    "verbs/modify/" + s.name + "-" + stateID(t.From) + "-to-" + stateID(t.To),
			Title: fmt.Sprintf("%s: %v to %v accepts its required and optional attributes, and refuses everything else", strings.ToUpper(s.name), t.From, t.To),
			Cite:  manual("ibv_modify_qp(3)", "verbs/modify/1"), Needs: s.needs, Labels: label, Defects: defectsOf(t),
			Sends:   "nothing",
			Expects: "a refusal without each required attribute and with each that is neither required nor optional, with the state unchanged; success with the required ones, alone and with each optional one but those of an alternate path",
			Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkTransition(t) }),
		})
	}
	if s.kind != verbs.QPTypeUD {
		cases = append(cases, conformance.Case{
			ID:    "verbs/modify/" + s.name + "-alternate-path",
			Title: strings.ToUpper(s.name) + ": every transition with an optional alternate path accepts one",
			Cite:  manual("ibv_modify_qp(3)", "verbs/modify/1"), Needs: s.needs | verbs.CapAutoMigration, Labels: label,
			Defects: []string{"OptionalAttrsRefused"},
			Sends:   "nothing",
			Expects: "for each such transition: success with an alternate path, with an armed one, and with all other optional attributes; the requested state",
			Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkAltPaths() }),
		})
	}
	return append(cases, conformance.Case{
		ID:    "verbs/modify/" + s.name + "-no-other-ways",
		Title: strings.ToUpper(s.name) + ": every transition that is not in the table is refused",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/2"), Needs: s.needs, Labels: label, Defects: []string{"ModifyLies"},
		Sends:   "nothing",
		Expects: "a refusal of each pair of states that is no transition, and the state unchanged",
		Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkOtherTransitions() }),
	}, conformance.Case{
		ID:    "verbs/modify/" + s.name + "-to-error-and-back",
		Title: strings.ToUpper(s.name) + ": a queue pair can go from every state to RESET and, except from RESET, to ERR",
		Cite:  manual("ibv_modify_qp(3)", "verbs/modify/3"), Needs: s.needs, Labels: label, Defects: []string{"ErrorIsFinal"},
		Sends:   "nothing",
		Expects: "the requested state; then RESET to INIT succeeds",
		Run:     rig.Body(func(r *rig.Rig) { newQPMover(r, s.kind).checkErrAndReset() }),
	})
}

// stateID returns the name of a state in case IDs.
func stateID(s verbs.QPState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "IBV_QPS_"))
}

// defectsOf returns the defects that a transition case detects.
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

// checkTransition fails the case unless a transition succeeds with its required and
// optional attributes, and fails without a required one or with any other.
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

// expectTransition fails the case unless a new queue pair accepts a transition with its
// required and these attributes.
func (m *qpMover) expectTransition(t rig.Transition, extra verbs.QPAttrMask) {
	qp := m.newQPIn(t.From)
	m.Must(fmt.Sprintf("%v to %v with %v", t.From, t.To, extra), m.modify(qp, t.From, t.To, t.Required|extra))
	m.ExpectState(qp, t.To)
	m.Must("a queue pair that can be closed", qp.Close())
}

// checkAltPaths fails the case unless transitions with an optional alternate path accept
// one, and accept to arm it.
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

// checkOtherTransitions fails the case unless every pair of states that is no transition
// is refused. SQE is left out, because it needs a failure.
func (m *qpMover) checkOtherTransitions() {
	for _, from := range everyState {
		if from == sqe {
			continue
		}
		qp := m.newQPIn(from)
		for _, to := range everyState {
			if isLegal(m.kind, from, to) {
				continue
			}
			m.MustFail(fmt.Sprintf("%v to %v", from, to), m.modify(qp, from, to, 0), verbs.ErrInvalid)
			m.ExpectState(qp, from)
		}
	}
}

// checkErrAndReset fails the case unless queue pairs in all states go to ERR and to
// RESET, and from there to INIT.
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
		m.ToState(qp, reset)
	}
}
