package verbsapi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// queueSession has three queue pairs without peers, two completion queues on a channel and a shared
// receive queue. No peer receives the requests, so those of RC are never acknowledged.
type queueSession struct {
	cqSet
	kind        verbs.QPType
	transitions []model.VerbsTransition
	path        verbs.AHAttr
	mem, closed *rig.Memory // closed is a deregistered region
	// ah is the destination of datagrams, and foreign one in otherPD.
	ah, foreign verbs.AH
	otherPD     verbs.PD
	srq         *modelSRQ // nil if the device has none, or cannot query it
	qps         [3]*modelQP
	lastID      uint64 // ID of the last request or receive
	// refusals: the dialogue also has calls that the device must refuse, and requests that fail.
	refusals bool
}

// modelSRQ is a shared receive queue and its model.
type modelSRQ struct {
	*model.VerbsSRQ
	srq  verbs.SRQ
	attr verbs.SRQAttr
}

// newModelSRQ returns an SRQ and its model, or nil if createQueriedSRQ does.
func newModelSRQ(r *rig.Rig, init verbs.SRQInit) *modelSRQ {
	srq, attr := createQueriedSRQ(r, init)
	if srq == nil {
		return nil
	}
	return &modelSRQ{VerbsSRQ: &model.VerbsSRQ{Posted: make(map[uint64]bool)}, srq: srq, attr: attr}
}

// modelQP is a queue pair and its model.
type modelQP struct {
	*model.VerbsQP
	qp             verbs.QP
	name           string
	sendCQ, recvCQ *modelCQ
	caps           verbs.QPCaps
}

// firstID is the ID before the first of a dialogue. It has more than 32 bits.
const firstID = 1_000_000_000_000

type queueStep = sessionStep[*queueSession]

// queueActions have two weights: without and with refusals.
var queueActions = []sessionAction[*queueSession]{
	{"go to the next state", []int{26, 22}, (*queueSession).advance},
	{"modify a queue pair", []int{8, 24}, (*queueSession).modifyAny},
	{"post receives", []int{18, 12}, (*queueSession).postRecvs},
	{"post sends", []int{18, 16}, (*queueSession).postSends},
	{"post a send that fails", []int{0, 7}, (*queueSession).postBadSend},
	{"post an invalid request", []int{0, 5}, (*queueSession).postInvalid},
	{"poll", []int{9, 8}, func(s *queueSession, step queueStep) { s.poll(s.cqs[step.cq], 1+step.n%4) }},
	{"arm", []int{6, 4}, func(s *queueSession, step queueStep) { s.arm(s.cqs[step.cq], step.n%2 == 0) }},
	{"resize", []int{9, 6}, func(s *queueSession, step queueStep) { s.resize(s.cqs[step.cq], step.n, s.minCQDepth()) }},
	{"use the shared receive queue", []int{5, 5}, func(s *queueSession, step queueStep) { s.useSRQ(step.n) }},
	{"close a queue pair and create another", []int{5, 4}, (*queueSession).replaceQP},
	{"close a CQ and create another", []int{3, 3}, (*queueSession).replaceCQ},
}

// newQueueSession returns a function that starts a session with queue pairs of this type. With
// refusals, the session has calls that must be refused. For iWARP RC it has no transitions but
// those from RESET, as the others need a connection.
func newQueueSession(kind verbs.QPType, refusals bool) func(*rig.Rig) rig.DialogueSession[queueStep] {
	return func(r *rig.Rig) rig.DialogueSession[queueStep] {
		s := &queueSession{cqSet: cqSet{Rig: r}, kind: kind, path: r.PathTo(r), refusals: refusals, lastID: firstID}
		for _, t := range slices.Concat(rig.Transitions(kind), transitionsFromSQE(kind)) {
			if t.Optional &^= rig.MigrationAttrs; isIB(r) || kind == verbs.QPTypeUD || t.From == reset {
				s.transitions = append(s.transitions, model.VerbsTransition(t))
			}
		}
		s.mem, s.closed = r.Memory(256, verbs.AccessLocalWrite), r.Memory(64, verbs.AccessLocalWrite)
		r.Must("a region that can be closed", s.closed.Close())
		if kind == verbs.QPTypeUD {
			s.otherPD = otherPD(r)
			s.ah = rig.Result(r.PD.CreateAH(s.path))(r, "an address handle")
			s.foreign = rig.Result(s.otherPD.CreateAH(s.path))(r, "an address handle")
		}
		s.open()
		return s
	}
}

// open creates the CQs, the SRQ and the queue pairs.
func (s *queueSession) open() {
	s.openCQs(12)
	s.createSRQ()
	for i := range s.qps {
		s.createQP(i, 5*i) // 5: each has other capacities and CQs
	}
}

// close closes the queue pairs, the SRQ and the CQs. It first checks that polls of the CQs that
// have overrun fail.
func (s *queueSession) close() {
	for _, cq := range s.cqs {
		if cq.Overrun {
			s.expectOverrun(cq)
		}
	}
	for _, q := range s.qps {
		s.Must(q.name+" that can be closed", q.qp.Close())
	}
	if s.srq != nil {
		s.Must("a shared receive queue that can be closed", s.srq.srq.Close())
	}
	s.closeCQs()
}

// transitionsFromSQE returns the transition from SQE, which RC does not have.
func transitionsFromSQE(kind verbs.QPType) []rig.Transition {
	switch kind {
	case verbs.QPTypeUD:
		return []rig.Transition{{From: sqe, To: rts, Optional: verbs.QPAttrCurState | verbs.QPAttrQKey}}
	case verbs.QPTypeUC:
		return []rig.Transition{{From: sqe, To: rts, Optional: verbs.QPAttrCurState | verbs.QPAttrAccessFlags}}
	}
	return nil
}

// Draw returns a random step.
func (s *queueSession) Draw(random *rand.Rand) queueStep {
	weight := 0 // the index in the weights of queueActions
	if s.refusals {
		weight = 1
	}
	step := drawStep(random, queueActions, weight)
	step.qp %= len(s.qps)
	return step
}

// Play performs a step, and compares the events and the attributes with the model. After an overrun
// it creates all objects again.
func (s *queueSession) Play(step queueStep) {
	if !s.refusals {
		s.avoidOverrun()
	}
	step.action.play(s, step)
	s.Sleep(shortWait)
	s.expectEvents()
	if s.overrun() {
		s.Note("a CQ overruns: all objects are created again")
		s.close()
		s.open()
		s.expectEvents()
	}
	s.expectCompletionEvents()
	for _, q := range s.qps {
		s.expectAttrs(q)
	}
}

// stepCompletions is the largest number of requests and receives of a queue pair, all of which a
// step can flush.
const stepCompletions = 8

// avoidOverrun polls the CQs that have no room for the completions of a step.
func (s *queueSession) avoidOverrun() {
	for _, cq := range s.cqs {
		if cq.Depth-cq.Len() < stepCompletions {
			s.poll(cq, cq.Len())
		}
	}
}

// Close polls the remaining completions, and closes all objects.
func (s *queueSession) Close() {
	if !s.overrun() {
		s.pollAll()
	}
	s.close()
	if s.ah != nil {
		s.Must("an address handle that can be closed", s.ah.Close())
		s.Must("an address handle that can be closed", s.foreign.Close())
		s.Must("a domain that can be closed", s.otherPD.Close())
	}
	s.Must("a region that can be closed", s.mem.Close())
}

// createSRQ creates the SRQ, if the device has SRQs.
func (s *queueSession) createSRQ() {
	s.srq = newModelSRQ(s.Rig, verbs.SRQInit{PD: s.PD, MaxWR: 3, MaxSGE: 1})
}

// createQP creates the i-th queue pair. n varies its capacities and CQs, and whether it uses the
// SRQ.
func (s *queueSession) createQP(i, n int) {
	q := &modelQP{name: fmt.Sprintf("queue pair %d", i+1), sendCQ: s.cqs[n%2], recvCQ: s.cqs[n/2%2]}
	init := verbs.QPInit{
		Type: s.kind, PD: s.PD, SendCQ: q.sendCQ.cq, RecvCQ: q.recvCQ.cq, SignalAll: n%5 == 1,
		Caps: verbs.QPCaps{MaxSendWR: 1 + n%4, MaxRecvWR: 1 + n/4%4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	var srq *model.VerbsSRQ
	if s.srq != nil && n%3 == 1 {
		init.SRQ, srq = s.srq.srq, s.srq.VerbsSRQ
	}
	q.qp = s.Rig.CreateQP(init)
	q.caps = s.QueryQP(q.qp).Caps
	s.Check(q.caps.MaxSendWR >= init.Caps.MaxSendWR && (init.SRQ != nil || q.caps.MaxRecvWR >= init.Caps.MaxRecvWR), fmt.Sprintf("%+v or more", init.Caps), "%+v", q.caps)
	q.VerbsQP = model.NewVerbsQP(q.qp.QPN(), model.VerbsQP{
		Type: s.kind, SRQ: srq, SignalAll: init.SignalAll, Transitions: s.transitions,
		RecvInReset: !isIB(s.Rig) && s.kind == verbs.QPTypeRC, CountsPSN: isIB(s.Rig),
		HasSQE: isIB(s.Rig) && s.kind != verbs.QPTypeRC,
		Sends:  model.VerbsQueue{Size: q.caps.MaxSendWR, CQ: q.sendCQ.VerbsCQ},
		Recvs:  model.VerbsQueue{Size: q.caps.MaxRecvWR, CQ: q.recvCQ.VerbsCQ},
	})
	s.qps[i] = q
}

// replaceQP closes a queue pair, in any state and with work outstanding, and creates another.
func (s *queueSession) replaceQP(step queueStep) {
	s.pollAll()
	s.closeQP(step.qp)
	s.createQP(step.qp, step.n)
}

// closeQP closes a queue pair, whose outstanding work then has no completions.
func (s *queueSession) closeQP(i int) {
	q := s.qps[i]
	s.Must(q.name+" that can be closed", q.qp.Close())
	s.MustFail("modifying a closed queue pair", q.qp.Modify(verbs.QPAttr{State: reset}, verbs.QPAttrState), verbs.ErrClosed)
	q.sendCQ.Forget(&q.Sends)
	q.recvCQ.Forget(&q.Recvs)
}

// minCQDepth returns the smallest depth with which a CQ is created or resized. With refusals a CQ
// may overrun, else it has room for the completions of a step.
func (s *queueSession) minCQDepth() int {
	if s.refusals {
		return 2
	}
	return stepCompletions
}

// replaceCQ closes a CQ, which must fail if a queue pair uses it, and creates another.
func (s *queueSession) replaceCQ(step queueStep) {
	cq := s.cqs[step.cq]
	if slices.ContainsFunc(s.qps[:], func(q *modelQP) bool { return q.sendCQ == cq || q.recvCQ == cq }) {
		s.MustFail("closing "+cq.name+", which queue pairs use,", cq.cq.Close(), verbs.ErrBusy)
		return
	}
	s.Must(cq.name+" that can be closed", cq.cq.Close())
	s.createCQ(step.cq, s.minCQDepth()+step.n%14)
}

// queueDialogue returns the two cases of a queue pair type: without and with refusals.
func queueDialogue(name string, kind verbs.QPType, needs verbs.Caps) []conformance.Case {
	body := func(refusals bool) func(*conformance.Bench) error {
		return rig.Dialogue[queueStep]{Dialogues: 10, Steps: 80, Open: newQueueSession(kind, refusals)}.Body()
	}
	return conformance.Group{Needs: needs, Labels: []string{"service:" + name}}.Cases([]conformance.Case{{
		ID: "dialogue/verbs-queues/" + name,
		Cite: cite("ibv_modify_qp(3)", "verbs/modify/1", "verbs/modify/3", "verbs/modify/4", "verbs/modify/6", "verbs/post/2", "verbs/post/4",
			"verbs/flush/1", "verbs/flush/2", "verbs/qp/8", "verbs/qp/9", "verbs/cq/4", "verbs/cq/7", "verbs/cq/10", "verbs/cq/11",
			"verbs/channel/2", "verbs/channel/7", "verbs/channel/8", "verbs/srq/4", "verbs/srq/9", "verbs/srq/10"),
		Title:   "States, work queues, CQs and events of queue pairs are as in a model, in any order of valid calls",
		Sends:   "random modifies, posts, polls, arms and resizes; requests that no peer receives",
		Expects: "the states, attributes, completions, completion events and asynchronous events of the model",
		Defects: []string{"FlushesLost", "ResetFlushes", "ResizeLoses", "EventsHalved", "CapsShort"},
		Run:     body(false),
	}, {
		ID: "dialogue/verbs-queues/" + name + "-refusals",
		Cite: cite("ibv_modify_qp(3)", "verbs/modify/1", "verbs/modify/2", "verbs/modify/5", "verbs/post/1", "verbs/post/3", "verbs/post/7",
			"verbs/qp/6", "verbs/cq/8", "verbs/flush/3", "verbs/srq/7", "verbs/srq/8", "verbs/signal/3", "verbs/post/11", "verbs/inline/2", "verbs/ah/4"),
		Title:   "Invalid modifies and posts are refused and change nothing, in any state",
		Sends:   "the same, with missing, excess and invalid attributes, posts in the wrong state, lists that are too long, memory and addresses of others, and CQs that overrun",
		Expects: "refusals that leave the states, attributes and queues of the model as they are",
		Defects: []string{"FlushesLost", "BadPostsSwallowed", "RecvNeedsReady"},
		Run:     body(true),
	}})
}

var queueDialogueCases = slices.Concat(
	queueDialogue("rc", verbs.QPTypeRC, verbs.CapRC),
	queueDialogue("uc", verbs.QPTypeUC, verbs.CapUC),
	queueDialogue("ud", verbs.QPTypeUD, verbs.CapUD),
)

// expectAttrs compares the state and the attributes of a queue pair with the model.
func (s *queueSession) expectAttrs(q *modelQP) {
	got := s.QueryQP(q.qp)
	s.Check(got.State == q.State, fmt.Sprintf("%s in %v", q.name, q.State), "%v", got.State)
	name, want, is := q.Differs(&got)
	s.Check(name == "", fmt.Sprintf("%s with %s %v", q.name, name, want), "%v", is)
	s.Check(got.Caps == q.caps, fmt.Sprintf("%s with the capacities %+v", q.name, q.caps), "%+v", got.Caps)
	if q.State == sqd {
		s.Check(got.SQDraining == q.Draining(), fmt.Sprintf("%s with sq_draining %v", q.name, q.Draining()), "%v", got.SQDraining)
	}
}

// expectEvents compares the asynchronous events with the model. After an overrun the device may
// raise other events too, and need not raise those of queue pairs.
func (s *queueSession) expectEvents() {
	overrun := s.overrun()
	reported := make(map[verbs.CQ]bool)
	for {
		e, err := s.Device.WaitAsync(0)
		if errors.Is(err, verbs.ErrTimeout) {
			break
		}
		s.Must("events", err)
		s.Note("event %v", e.Type)
		// The queue pairs of a CQ that overruns may fail, and overrun their other CQ.
		s.Check(s.removeModelEvent(&e) || overrun && !reported[e.CQ], "no such event of this object", "%v", e.Type)
		if e.Type == verbs.EventCQErr {
			reported[e.CQ] = true
		}
	}
	for _, cq := range s.cqs {
		if cq.Overrun {
			s.Check(reported[cq.cq], "CQ_ERR of "+cq.name, "no event")
		}
	}
	if overrun {
		return
	}
	for _, q := range s.qps {
		s.Check(q.LastWQE == 0, "QP_LAST_WQE_REACHED of "+q.name, "no event")
		s.Check(q.Drained == 0, "SQ_DRAINED of "+q.name, "no event")
	}
}

// removeModelEvent removes an event of a queue pair from the model, and reports whether the model
// had it.
func (s *queueSession) removeModelEvent(e *verbs.AsyncEvent) bool {
	for _, q := range s.qps {
		count := map[verbs.AsyncEventType]*int{verbs.EventQPLastWQEReached: &q.LastWQE, verbs.EventSQDrained: &q.Drained}[e.Type]
		if e.QP == q.qp && count != nil && *count > 0 {
			*count--
			return true
		}
	}
	return false
}
