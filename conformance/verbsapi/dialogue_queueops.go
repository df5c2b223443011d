package verbsapi

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// nobodysQPN is the number of a queue pair that does not exist.
const nobodysQPN verbs.QPN = 0xfffff0

// randomAttrs returns random valid values of all attributes. Timeouts are off, or longer than a
// dialogue takes. The high bit of the Q_Key, which marks a privileged one, is clear.
func (s *queueSession) randomAttrs(random *rand.Rand) verbs.QPAttr {
	limits := s.QueryDevice()
	return verbs.QPAttr{
		Port: 1, QKey: random.Uint32() >> 1, Access: verbs.Access(random.Uint32()) & rig.RemoteAccess(s.Rig),
		AH: s.path, PathMTU: verbs.MTU(1 + random.IntN(int(s.QueryPort().ActiveMTU))), DestQPN: nobodysQPN + verbs.QPN(random.IntN(8)),
		RQPSN: random.Uint32() & 0xffffff, SQPSN: random.Uint32() & 0xffffff,
		MaxDestRdAtomic: min(1<<random.IntN(8), limits.MaxQPRdAtomic), MaxRdAtomic: min(1<<random.IntN(8), limits.MaxQPInitAtomic),
		MinRNRTimer: uint8(random.IntN(32)), Timeout: []uint8{0, 28, 30, 31}[random.IntN(4)],
		RetryCnt: uint8(random.IntN(8)), RNRRetry: uint8(random.IntN(8)), EnSQDAsyncNotify: random.IntN(3) > 0, Caps: smallCaps,
	}
}

// invalidValues returns functions that set an attribute to a value that a device must refuse.
func (s *queueSession) invalidValues() map[verbs.QPAttrMask][]func(*verbs.QPAttr) {
	limits := s.QueryDevice()
	return map[verbs.QPAttrMask][]func(*verbs.QPAttr){
		verbs.QPAttrPort:            {func(a *verbs.QPAttr) { a.Port = 0 }, func(a *verbs.QPAttr) { a.Port = limits.Ports + 1 }},
		verbs.QPAttrPKeyIndex:       {func(a *verbs.QPAttr) { a.PKeyIndex = uint16(s.QueryPort().PKeys) }},
		verbs.QPAttrPathMTU:         {func(a *verbs.QPAttr) { a.PathMTU = 0 }, func(a *verbs.QPAttr) { a.PathMTU = 6 }},
		verbs.QPAttrMaxDestRdAtomic: {func(a *verbs.QPAttr) { a.MaxDestRdAtomic = limits.MaxQPRdAtomic + 1 }},
		verbs.QPAttrMaxQPRdAtomic:   {func(a *verbs.QPAttr) { a.MaxRdAtomic = limits.MaxQPInitAtomic + 1 }},
		verbs.QPAttrMinRNRTimer:     {func(a *verbs.QPAttr) { a.MinRNRTimer = 32 }},
		verbs.QPAttrTimeout:         {func(a *verbs.QPAttr) { a.Timeout = 32 }},
	}
}

// advance moves a queue pair to the next state on the way from RESET to RTS, between RTS and SQD,
// from SQE to RTS, or from ERR to RESET. In some steps, and where iWARP has no such transition, it
// moves it to ERR.
func (s *queueSession) advance(step queueStep) {
	q := s.qps[step.qp]
	to := map[verbs.QPState]verbs.QPState{reset: initState, initState: rtr, rtr: rts, rts: sqd, sqd: rts, sqe: rts, errState: reset}[q.State]
	switch {
	case q.State == rts && step.n%2 == 0 || q.Draining() && step.n%3 > 0:
		to = errState
	case q.Transition(to) == nil:
		to = errState
	}
	s.modify(q, to, step, "")
}

// modifyAny modifies a queue pair to a random state. In a dialogue with refusals, three of four
// calls have a wrong mask or value.
func (s *queueSession) modifyAny(step queueStep) {
	q := s.qps[step.qp]
	fault := ""
	if s.refusals {
		fault = []string{"", "missing", "excess", "value"}[step.n/8%4]
	}
	s.modify(q, everyState[step.n%len(everyState)], step, fault)
}

// modify modifies a queue pair to a state. fault is "", or the fault of the attributes: "missing"
// (a required one), "excess" (one that is not allowed) or "value" (an invalid one). The device must
// refuse an invalid transition, mask or value.
func (s *queueSession) modify(q *modelQP, to verbs.QPState, step queueStep, fault string) {
	t := q.Transition(to)
	switch {
	case t == nil && !s.refusals:
		return
	case s.kind != verbs.QPTypeUD && !isIB(s.Rig) && (t == nil || fault != ""):
		return // invalid transitions of iWARP connections are not specified
	case q.State == sqd && to == sqd && q.Draining():
		return // IBTA leaves open what can be modified before the send queue has drained
	}
	random := rand.New(rand.NewPCG(step.seed, 0))
	attr := s.randomAttrs(random)
	attr.State, attr.CurState = to, q.State
	mask := verbs.QPAttrState
	if t != nil {
		mask |= t.Required | t.Optional&verbs.QPAttrMask(random.Uint32())
	}
	validValues := s.spoilModify(&attr, &mask, t, step, fault)
	if to == reset {
		s.pollAll() // a device may discard the completions of a queue pair that is reset
	}
	err := q.qp.Modify(attr, mask)
	s.Note("modify %s from %v to %v with %v: %v", q.name, q.State, to, mask, err)
	what := fmt.Sprintf("%s from %v to %v with %v", q.name, q.State, to, mask)
	if !validValues || !q.CanModify(to, mask) {
		s.MustFail(what, err, verbs.ErrInvalid)
		return
	}
	s.Must(what, err)
	q.Modify(&attr, mask)
}

// spoilModify removes a required attribute from the mask ("missing"), adds one that is not allowed
// ("excess"), or makes the value of one invalid ("value"). It reports whether all values are valid.
func (s *queueSession) spoilModify(attr *verbs.QPAttr, mask *verbs.QPAttrMask, t *model.VerbsTransition, step queueStep, fault string) (valid bool) {
	if t == nil {
		return true
	}
	switch fault {
	case "missing":
		*mask &^= nthBit(t.Required, step.n)
	case "excess":
		*mask |= nthBit(rig.EveryAttr&^(t.Required|t.Optional|rig.MigrationAttrs), step.n)
	case "value":
		for bit, spoils := range s.invalidValues() {
			if bit == nthBit(*mask&^verbs.QPAttrState, step.n) {
				spoils[step.n%len(spoils)](attr)
				return false
			}
		}
	}
	return true
}

// nthBit returns the n-th bit that is set in a mask, modulo their number; 0 if none is set.
func nthBit(mask verbs.QPAttrMask, n int) (bit verbs.QPAttrMask) {
	if mask == 0 {
		return 0
	}
	n %= bits.OnesCount32(uint32(mask))
	rig.EachAttr(mask, func(b verbs.QPAttrMask) {
		if n == 0 {
			bit = b
		}
		n--
	})
	return bit
}

// postRecvs posts up to three receives in one call. In a state without receives the device must
// refuse them, which is tried with refusals only.
func (s *queueSession) postRecvs(step queueStep) {
	q := s.qps[step.qp]
	if !s.refusals && !q.CanReceive() {
		return
	}
	wrs := make([]verbs.RecvWR, 1+step.n%3)
	for i := range wrs {
		s.lastID++
		wrs[i] = verbs.RecvWR{WRID: s.lastID, SGL: s.mem.SGL(0, 64)}
	}
	n, err := q.qp.PostRecv(wrs)
	s.Note("post %d receives to %s in %v: %d, %v", len(wrs), q.name, q.State, n, err)
	if !q.CanReceive() {
		s.MustFail(fmt.Sprintf("a receive of %s in %v", q.name, q.State), err, nil)
		s.Check(n == 0, "no receive posted", "%d", n)
		return
	}
	s.expectPosted(&q.Recvs, len(wrs), n, err, q.State == errState)
	for _, wr := range wrs[:n] {
		q.PostRecv(wr.WRID)
	}
}

// sendWR returns a SEND with the next ID.
func (s *queueSession) sendWR(signaled bool) verbs.SendWR {
	s.lastID++
	wr := verbs.SendWR{WRID: s.lastID, Opcode: verbs.OpSend, SGL: s.mem.SGL(64, 8)}
	if signaled {
		wr.Flags = verbs.SendSignaled
	}
	if s.kind == verbs.QPTypeUD {
		wr.UD = verbs.UD{AH: s.ah, QPN: nobodysQPN, QKey: qKey}
	}
	return wr
}

// postSends posts up to three sends in one call. In a state without sends the device must refuse
// them, which is tried with refusals only.
func (s *queueSession) postSends(step queueStep) {
	q := s.qps[step.qp]
	if !s.refusals && !q.CanSend() {
		return
	}
	wrs := make([]verbs.SendWR, 1+step.n%3)
	for i := range wrs {
		wrs[i] = s.sendWR(step.n>>(3+i)&1 == 0)
	}
	n, err := q.qp.PostSend(wrs)
	s.Note("post %d sends to %s in %v: %d, %v", len(wrs), q.name, q.State, n, err)
	if !q.CanSend() {
		s.MustFail(fmt.Sprintf("a send of %s in %v", q.name, q.State), err, nil)
		s.Check(n == 0, "no send posted", "%d", n)
		return
	}
	// Requests are flushed at once, or need no acknowledgement.
	atOnce := q.State == errState || q.State == sqe || q.State == rts && q.Type != verbs.QPTypeRC
	s.expectPosted(&q.Sends, len(wrs), n, err, atOnce)
	for _, wr := range wrs[:n] {
		q.PostSend(wr.WRID, wr.Flags&verbs.SendSignaled != 0)
	}
}

// postBadSend posts a send from a closed region, or with an address handle of another domain. It
// must be refused, or complete with LOC_PROT_ERR or, because of the address handle, LOC_QP_OP_ERR.
func (s *queueSession) postBadSend(step queueStep) {
	q := s.qps[step.qp]
	least, _ := q.Sends.Room()
	if q.State != rts || len(q.Sends.Pending()) > 0 || least == 0 {
		return // the send would not be executed at once
	}
	wr, what, statuses := s.sendWR(step.n%2 == 0), "from a closed region", []verbs.WCStatus{verbs.WCLocProtErr}
	if s.foreign != nil && step.n%3 == 0 {
		wr.UD.AH, what, statuses = s.foreign, "with an address of another domain", append(statuses, verbs.WCLocQPOpErr)
	} else {
		wr.SGL = []verbs.SGE{s.closed.SGE(0, 8)}
	}
	n, err := q.qp.PostSend([]verbs.SendWR{wr})
	s.Note("post a send %s to %s: %d, %v", what, q.name, n, err)
	if err != nil {
		return
	}
	q.Sends.Add(model.VerbsWR{ID: wr.WRID})
	q.FailSend(statuses...)
}

// postInvalid posts a request that the device must refuse in every state but ERR: with too many
// SGEs, too much inline data, or an opcode that does not exist.
func (s *queueSession) postInvalid(step queueStep) {
	q := s.qps[step.qp]
	if q.State == errState {
		return // a device may flush requests without checking them
	}
	wr, what := s.sendWR(true), "a send with too long a list"
	switch step.n % 4 {
	case 0:
		expectRecvRefused(s.Rig, "a receive with too long a list", q.qp, sgeList(s.mem, max(1, q.caps.MaxRecvSGE)+1, 4), nil)
		return
	case 1:
		wr.SGL = sgeList(s.mem, q.caps.MaxSendSGE+1, 4)
	case 2:
		what, wr.SGL, wr.Inline, wr.Flags = "a send with too much inline data", nil, make([]byte, q.caps.MaxInline+1), wr.Flags|verbs.SendInline
	default:
		what, wr.Opcode = "an operation that does not exist", 200
	}
	n, err := q.qp.PostSend([]verbs.SendWR{wr})
	s.Note("post %s to %s: %v", what, q.name, err)
	s.MustFail(what, err, nil)
	s.Check(n == 0, "no request posted", "%d", n)
}

// useSRQ posts a receive to the shared receive queue, sets its limit, resizes it or tries to close
// it, and compares the attributes with the model. Posts to a full queue and limits beyond its size
// must be refused.
func (s *queueSession) useSRQ(n int) {
	if s.srq == nil {
		return
	}
	q := s.srq
	switch n % 6 {
	case 0, 1, 2:
		s.lastID++
		posted, err := q.srq.PostRecv([]verbs.RecvWR{{WRID: s.lastID, SGL: s.mem.SGL(0, 64)}})
		if q.Left == q.attr.MaxWR {
			s.MustFail("a receive for a full queue", err, verbs.ErrNoMemory)
			s.Check(posted == 0, "no receive posted", "%d", posted)
			return
		}
		s.Must("a receive", err)
		q.Post(s.lastID)
	case 3:
		limit := n / 6 % (q.Left + 1)
		s.Must("a limit", q.srq.Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit))
		q.attr.Limit = limit
		s.MustFail("a limit beyond the size", q.srq.Modify(verbs.SRQAttr{Limit: q.attr.MaxWR + 1}, verbs.SRQLimit), nil)
	case 4:
		s.enlargeSRQ(1 + n%3)
		size := q.attr.MaxWR + 1 // the refused modify must change neither size nor limit
		err := q.srq.Modify(verbs.SRQAttr{MaxWR: size, Limit: size + 1}, verbs.SRQMaxWR|verbs.SRQLimit)
		s.MustFail("a limit beyond the new size", err, nil)
	default:
		s.replaceSRQ()
		return
	}
	got := srqAttr(s.Rig, q.srq)
	s.Check(got == q.attr, fmt.Sprintf("%+v", q.attr), "%+v", got)
}

// enlargeSRQ enlarges the shared receive queue, up to twelve receives, if the device can resize it.
func (s *queueSession) enlargeSRQ(by int) {
	const maxSize = 12
	size := s.srq.attr.MaxWR + by
	if size > maxSize {
		return
	}
	mask := verbs.SRQMaxWR
	if size%2 == 0 { // in some calls together with the limit, which stays the same
		mask |= verbs.SRQLimit
	}
	err := s.srq.srq.Modify(verbs.SRQAttr{MaxWR: size, Limit: s.srq.attr.Limit}, mask)
	if errors.Is(err, verbs.ErrNotSupported) {
		return
	}
	s.Must(fmt.Sprintf("a size of %d", size), err)
	s.srq.attr.MaxWR = srqAttr(s.Rig, s.srq.srq).MaxWR
	s.Check(s.srq.attr.MaxWR >= size, fmt.Sprintf("a size of %d or more", size), "%d", s.srq.attr.MaxWR)
}

// replaceSRQ closes the shared receive queue, which must fail if a queue pair uses it, and creates
// another.
func (s *queueSession) replaceSRQ() {
	if slices.ContainsFunc(s.qps[:], func(q *modelQP) bool { return q.SRQ != nil }) {
		s.MustFail("closing a shared receive queue in use", s.srq.srq.Close(), verbs.ErrBusy)
		return
	}
	s.Must("a shared receive queue that can be closed", s.srq.srq.Close())
	s.createSRQ()
}
