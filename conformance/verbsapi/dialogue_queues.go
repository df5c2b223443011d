package verbsapi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/dialogue"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// queueSession has three queue pairs without peers, two completion queues on a channel and
// a shared receive queue. Requests of RC are never acknowledged, and others are lost.
type queueSession struct {
	cqSet
	kind        verbs.QPType
	transitions []model.VerbsTransition
	path        verbs.AHAttr
	mem, closed *rig.Memory // closed is a closed region
	ah          verbs.AH    // the destination of datagrams
	srq         *modelSRQ   // nil if the device has none
	qps         [3]*modelQP
	lastID      uint64
}

// modelSRQ is a shared receive queue and its model.
type modelSRQ struct {
	*model.VerbsSRQ
	srq  verbs.SRQ
	attr verbs.SRQAttr
}

func newModelSRQ(r *rig.Rig, init verbs.SRQInit) *modelSRQ {
	srq := r.CreateSRQ(init)
	return &modelSRQ{VerbsSRQ: &model.VerbsSRQ{Posted: make(map[uint64]bool)}, srq: srq, attr: srqAttr(r, srq)}
}

// modelQP is a queue pair and its model.
type modelQP struct {
	*model.VerbsQP
	qp             verbs.QP
	name           string
	sendCQ, recvCQ *modelCQ
	caps           verbs.QPCaps
}

// queueStep is a verb call. Its numbers select an object and vary the arguments.
type queueStep struct {
	action *queueAction
	qp, cq int
	n      int
	seed   uint64
}

func (s queueStep) String() string {
	return fmt.Sprintf("%s (queue pair %d, CQ %d, variant %d)", s.action.name, s.qp+1, s.cq+1, s.n)
}

// queueAction is a kind of step. The weight is its share of the steps.
type queueAction struct {
	name   string
	weight int
	play   func(*queueSession, queueStep)
}

var queueActions = []queueAction{
	{"go to the next state", 26, func(s *queueSession, step queueStep) { s.advance(step) }},
	{"modify a queue pair", 14, func(s *queueSession, step queueStep) { s.modifyAny(step) }},
	{"post receives", 14, func(s *queueSession, step queueStep) { s.postRecvs(step) }},
	{"post sends", 18, func(s *queueSession, step queueStep) { s.postSends(step) }},
	{"post a send from a closed region", 3, func(s *queueSession, step queueStep) { s.postBadSend(step) }},
	{"post a list that is too long", 2, func(s *queueSession, step queueStep) { s.postLongList(step) }},
	{"poll", 16, func(s *queueSession, step queueStep) { s.poll(s.cqs[step.cq], 1+step.n%9) }},
	{"arm", 8, func(s *queueSession, step queueStep) { s.arm(s.cqs[step.cq], step.n%2 == 0) }},
	{"resize", 5, func(s *queueSession, step queueStep) { s.resize(s.cqs[step.cq], step.n) }},
	{"use the shared receive queue", 5, func(s *queueSession, step queueStep) { s.useSRQ(step.n) }},
	{"close a queue pair and create another", 6, func(s *queueSession, step queueStep) { s.replaceQP(step.qp, step.n) }},
	{"close a CQ and create another", 3, func(s *queueSession, step queueStep) { s.replaceCQ(step.cq, step.n) }},
}

func newQueueSession(kind verbs.QPType) func(*rig.Rig) dialogue.Session[queueStep] {
	return func(r *rig.Rig) dialogue.Session[queueStep] {
		s := &queueSession{cqSet: cqSet{Rig: r}, kind: kind, path: r.PathTo(r)}
		for _, t := range slices.Concat(rig.Transitions(kind), transitionsFromSQE(kind)) {
			if t.Optional &^= rig.MigrationAttrs; isIB(r) || kind == verbs.QPTypeUD || t.From == reset {
				s.transitions = append(s.transitions, model.VerbsTransition(t))
			}
		}
		s.mem, s.closed = r.Memory(256, verbs.AccessLocalWrite), r.Memory(64, verbs.AccessLocalWrite)
		r.Must("a region that can be closed", s.closed.Close())
		if kind == verbs.QPTypeUD {
			s.ah = rig.Result(r.PD.CreateAH(s.path))(r, "an address handle")
		}
		s.open()
		return s
	}
}

// open creates the queues.
func (s *queueSession) open() {
	s.openCQs(12)
	s.createSRQ()
	for i := range s.qps {
		s.createQP(i, 5*i)
	}
}

// close closes the queues. A CQ that overran must fail when it is polled.
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

func (s *queueSession) Draw(random *rand.Rand) queueStep {
	step := queueStep{qp: random.IntN(len(s.qps)), cq: random.IntN(len(s.cqs)), n: random.IntN(1000), seed: random.Uint64()}
	total := 0
	for i := range queueActions {
		total += queueActions[i].weight
	}
	pick := random.IntN(total)
	for i := range queueActions {
		if pick -= queueActions[i].weight; pick < 0 {
			step.action = &queueActions[i]
			break
		}
	}
	return step
}

func (s *queueSession) Play(step queueStep) {
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

// Close polls what is left, and closes all objects.
func (s *queueSession) Close() {
	if !s.overrun() {
		s.pollAll()
	}
	s.close()
	if s.ah != nil {
		s.Must("an address handle that can be closed", s.ah.Close())
	}
	s.Must("a region that can be closed", s.mem.Close())
}

func (s *queueSession) createSRQ() {
	if s.Caps.Has(verbs.CapSRQ) {
		s.srq = newModelSRQ(s.Rig, verbs.SRQInit{PD: s.PD, MaxWR: 5, MaxSGE: 1})
	}
}

// createQP creates a queue pair in RESET. n selects its capacities, its CQs and its receive queue.
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
func (s *queueSession) replaceQP(i, n int) {
	s.pollAll()
	s.closeQP(i)
	s.createQP(i, n)
}

func (s *queueSession) closeQP(i int) {
	q := s.qps[i]
	s.Must(q.name+" that can be closed", q.qp.Close())
	s.MustFail("modifying a closed queue pair", q.qp.Modify(verbs.QPAttr{State: reset}, verbs.QPAttrState), verbs.ErrClosed)
	q.sendCQ.Forget(&q.Sends)
	q.recvCQ.Forget(&q.Recvs)
}

// replaceCQ tries to close a CQ. If no queue pair uses it, it is created again.
func (s *queueSession) replaceCQ(i, n int) {
	cq := s.cqs[i]
	if slices.ContainsFunc(s.qps[:], func(q *modelQP) bool { return q.sendCQ == cq || q.recvCQ == cq }) {
		s.MustFail("closing "+cq.name+", which queue pairs use,", cq.cq.Close(), verbs.ErrBusy)
		return
	}
	s.Must(cq.name+" that can be closed", cq.cq.Close())
	s.createCQ(i, 2+n%14)
}

// queueDialogue returns the case of a queue pair type.
func queueDialogue(name string, kind verbs.QPType, needs verbs.Caps, defects ...string) conformance.Case {
	return conformance.Case{
		ID: "dialogue/verbs-queues/" + name, Needs: needs, Labels: []string{"service:" + name},
		Cite: cite("ibv_modify_qp(3)", "verbs/modify/1", "verbs/modify/2", "verbs/modify/3", "verbs/modify/4", "verbs/modify/5", "verbs/modify/6",
			"verbs/post/1", "verbs/post/3", "verbs/post/4", "verbs/flush/1", "verbs/flush/2", "verbs/qp/9", "verbs/cq/4", "verbs/cq/8",
			"verbs/cq/11", "verbs/channel/2", "verbs/channel/8", "verbs/srq/4", "verbs/srq/10"),
		Title:   "States, attributes, work queues, CQs and events of queue pairs are as in a model, in any order of calls",
		Sends:   "random modifies with valid, missing, excess and invalid attributes; posts, polls, arms, resizes; requests that no peer receives",
		Expects: "the results, states, attributes, completions, completion events and asynchronous events of the model",
		Defects: defects,
		Run:     dialogue.Spec[queueStep]{Dialogues: 12, Steps: 80, Open: newQueueSession(kind)}.Body(),
	}
}

var queueDialogueCases = []conformance.Case{
	queueDialogue("rc", verbs.QPTypeRC, verbs.CapRC, "FlushesLost", "ResetFlushes", "ArmLost", "PollDiscards"),
	queueDialogue("uc", verbs.QPTypeUC, verbs.CapUC, "FlushesLost", "ResetFlushes", "ModifyLies", "QueryForgets"),
	queueDialogue("ud", verbs.QPTypeUD, verbs.CapUD, "FlushesLost", "ResetFlushes", "ModifyLies", "QueryForgets"),
}

// expectAttrs compares the state and the attributes of a queue pair.
func (s *queueSession) expectAttrs(q *modelQP) {
	got := s.QueryQP(q.qp)
	s.Check(got.State == q.State, fmt.Sprintf("%s in %v", q.name, q.State), "%v", got.State)
	name, want, is := q.Differs(&got)
	s.Check(name == "", fmt.Sprintf("%s with %s %v", q.name, name, want), "%v", is)
	s.Check(got.Caps == q.caps, fmt.Sprintf("%s with the capacities %+v", q.name, q.caps), "%+v", got.Caps)
	s.Check(q.State != sqd || got.SQDraining == q.Draining(), fmt.Sprintf("%s with sq_draining %v", q.name, q.Draining()), "%v", got.SQDraining)
}

// expectEvents compares the asynchronous events.
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
		s.Check(s.expectsEvent(&e) || overrun && !reported[e.CQ], "no event of this kind for this object", "%v", e.Type)
		if e.Type == verbs.EventCQErr {
			reported[e.CQ] = true
		}
	}
	for _, cq := range s.cqs {
		s.Check(!cq.Overrun || reported[cq.cq], "CQ_ERR of "+cq.name, "no event")
	}
	for _, q := range s.qps {
		s.Check(q.LastWQE == 0 || overrun, "QP_LAST_WQE_REACHED of "+q.name, "no event")
		s.Check(q.Drained == 0 || overrun, "SQ_DRAINED of "+q.name, "no event")
	}
}

// expectsEvent reports whether the model has raised the event, and takes it.
func (s *queueSession) expectsEvent(e *verbs.AsyncEvent) bool {
	for _, q := range s.qps {
		count := map[verbs.AsyncEventType]*int{verbs.EventQPLastWQEReached: &q.LastWQE, verbs.EventSQDrained: &q.Drained}[e.Type]
		if e.QP == q.qp && count != nil && *count > 0 {
			*count--
			return true
		}
	}
	return false
}
