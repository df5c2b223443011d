package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The transitions of IBTA table 91: type, from and to state, required attributes, optional ones.
// Transitions to RESET, and to ERR from all states but RESET, exist for every type, without
// attributes.
const transitions = `
RC   RESET INIT | pkey port access |
RC   INIT INIT  | | pkey port access
RC   INIT RTR   | av mtu dest rqpsn dest_rd rnr_timer | alt access pkey
RC   RTR RTS    | timeout retry rnr_retry sqpsn rd | cur alt access rnr_timer mig
RC   RTS RTS    | | cur access alt mig rnr_timer
RC   RTS SQD    | | notify
RC   SQD SQD    | | port av timeout retry rnr_retry rd dest_rd alt access pkey rnr_timer mig
RC   SQD RTS    | | cur alt access mig rnr_timer
UC   RESET INIT | pkey port access |
UC   INIT INIT  | | pkey port access
UC   INIT RTR   | av mtu dest rqpsn | alt access pkey
UC   RTR RTS    | sqpsn | cur alt access mig
UC   RTS RTS    | | cur access alt mig
UC   RTS SQD    | | notify
UC   SQD SQD    | | av alt access pkey mig
UC   SQD RTS    | | cur alt access mig
UC   SQE RTS    | | cur access
UD   RESET INIT | pkey port qkey |
UD   INIT INIT  | | pkey port qkey
UD   INIT RTR   | | pkey qkey
UD   RTR RTS    | sqpsn | cur qkey
UD   RTS RTS    | | cur qkey
UD   RTS SQD    | | notify
UD   SQD SQD    | | pkey qkey
UD   SQD RTS    | | cur qkey
UD   SQE RTS    | | cur qkey
XINI RESET INIT | pkey port access |
XINI INIT INIT  | | pkey port access
XINI INIT RTR   | av mtu dest rqpsn | alt access pkey
XINI RTR RTS    | timeout retry rnr_retry sqpsn rd | cur alt access mig
XINI RTS RTS    | | cur access alt mig
XINI RTS SQD    | | notify
XINI SQD SQD    | | port av timeout retry rnr_retry rd alt access pkey mig
XINI SQD RTS    | | cur alt access mig
XTGT RESET INIT | pkey port access |
XTGT INIT INIT  | | pkey port access
XTGT INIT RTR   | av mtu dest rqpsn dest_rd rnr_timer | alt access pkey
XTGT RTR RTS    | timeout sqpsn | cur alt access rnr_timer mig
XTGT RTS RTS    | | cur access alt mig rnr_timer
XTGT RTS SQD    | | notify
XTGT SQD SQD    | | port av timeout dest_rd alt access pkey rnr_timer mig
XTGT SQD RTS    | | cur alt access mig rnr_timer
`

var attrNames = map[string]verbs.QPAttrMask{
	"cur": verbs.QPAttrCurState, "notify": verbs.QPAttrEnSQDAsyncNotify, "access": verbs.QPAttrAccessFlags,
	"pkey": verbs.QPAttrPKeyIndex, "port": verbs.QPAttrPort, "qkey": verbs.QPAttrQKey, "av": verbs.QPAttrAV,
	"mtu": verbs.QPAttrPathMTU, "timeout": verbs.QPAttrTimeout, "retry": verbs.QPAttrRetryCnt,
	"rnr_retry": verbs.QPAttrRNRRetry, "rqpsn": verbs.QPAttrRQPSN, "rd": verbs.QPAttrMaxQPRdAtomic,
	"alt": verbs.QPAttrAltPath, "rnr_timer": verbs.QPAttrMinRNRTimer, "sqpsn": verbs.QPAttrSQPSN,
	"dest_rd": verbs.QPAttrMaxDestRdAtomic, "mig": verbs.QPAttrPathMigState, "cap": verbs.QPAttrCap,
	"dest": verbs.QPAttrDestQPN,
}

var typeNames = map[string]verbs.QPType{
	"RC": verbs.QPTypeRC, "UC": verbs.QPTypeUC, "UD": verbs.QPTypeUD, "XINI": verbs.QPTypeXRCSend, "XTGT": verbs.QPTypeXRCRecv,
}

var stateNames = map[string]verbs.QPState{
	"RESET": verbs.QPStateReset, "INIT": verbs.QPStateInit, "RTR": verbs.QPStateRTR, "RTS": verbs.QPStateRTS,
	"SQD": verbs.QPStateSQD, "SQE": verbs.QPStateSQE, "ERR": verbs.QPStateErr,
}

type matrixEdge struct {
	typ      verbs.QPType
	from, to verbs.QPState
}

type matrixRule struct{ must, may verbs.QPAttrMask }

func matrix(t *testing.T) map[matrixEdge]matrixRule {
	t.Helper()
	rules := map[matrixEdge]matrixRule{}
	masks := func(names string) (m verbs.QPAttrMask) {
		for _, w := range strings.Fields(names) {
			if attrNames[w] == 0 {
				t.Fatalf("there is no attribute %q", w)
			}
			m |= attrNames[w]
		}
		return m
	}
	for line := range strings.Lines(strings.TrimSpace(transitions)) {
		part := strings.Split(line, "|")
		head := strings.Fields(part[0])
		rules[matrixEdge{typeNames[head[0]], stateNames[head[1]], stateNames[head[2]]}] = matrixRule{masks(part[1]), masks(part[2])}
	}
	for _, typ := range typeNames {
		for _, from := range stateNames {
			rules[matrixEdge{typ, from, verbs.QPStateReset}] = matrixRule{}
			if from != verbs.QPStateReset {
				rules[matrixEdge{typ, from, verbs.QPStateErr}] = matrixRule{}
			}
		}
	}
	return rules
}

// matrixHost creates QPs in any state.
type matrixHost struct {
	*host
	xrcd  *nic.XRCD
	rules map[matrixEdge]matrixRule
}

func newMatrixHost(t *testing.T) *matrixHost {
	h := &matrixHost{host: newHost(t, "fd00::1", nil), rules: matrix(t)}
	h.xrcd = must.Get(h.nic.OpenXRCD())(t)
	return h
}

// attr returns valid values for all attributes.
func (h *matrixHost) attr(from, to verbs.QPState) verbs.QPAttr {
	a := connAttr(h.addr, 0x99)
	a.State, a.CurState = to, from
	a.AltAH, a.AltPort, a.AltTimeout = a.AH, 1, 5
	return a
}

// in creates a QP and moves it to a state by the shortest path.
func (h *matrixHost) in(typ verbs.QPType, state verbs.QPState) *QP {
	h.t.Helper()
	q := h.qp(typ, func(c *QPConfig) {
		if typ == verbs.QPTypeXRCRecv {
			c.XRCD, c.SendCQ, c.RecvCQ = h.xrcd, nil, nil
		}
	})
	path := []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS}
	switch state {
	case verbs.QPStateReset:
		path = nil
	case verbs.QPStateInit, verbs.QPStateErr:
		path = path[:1]
	case verbs.QPStateRTR:
		path = path[:2]
	}
	if state >= verbs.QPStateSQD && state != verbs.QPStateSQE {
		path = append(path[:len(path):len(path)], state)
	}
	for _, to := range path {
		h.modify(q, h.attr(q.state, to), h.rules[matrixEdge{typ, q.state, to}].must|verbs.QPAttrState)
	}
	if state == verbs.QPStateSQE {
		h.breakSend(q)
	}
	if q.state != state {
		h.t.Fatalf("%v is in %v, not in %v", typ, q.state, state)
	}
	return q
}

// breakSend fails a request of an unreliable QP, which moves it to SQE.
func (h *host) breakSend(q *QP) {
	h.t.Helper()
	wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{{Addr: 1, Length: 4, LKey: 0xbad}}}
	var refs Refs
	if q.cfg.Type == verbs.QPTypeUD {
		ah := must.Get(h.nic.CreateAH(h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(h.addr)}}))(h.t)
		refs.AH = ah
	}
	must.Do(h.t, q.PostSend(0, &wr, refs))
	if n := h.nic.Output(0, make([]link.Datagram, 1)); n != 0 {
		h.t.Fatalf("sent %d packets of a request with a wrong key", n)
	}
}

func eachState(visit func(verbs.QPState)) {
	for s := verbs.QPStateReset; s <= verbs.QPStateErr; s++ {
		visit(s)
	}
}

// qp/1, qp/2, qp/9: Every transition of the table works with its required attributes, with each
// optional one and with all. It fails, without changes, if a required attribute is missing, with
// any other attribute, and if it is not in the table.
func TestQPTransitionAttributes(t *testing.T) {
	for name, typ := range typeNames {
		t.Run(name, func(t *testing.T) {
			h := newMatrixHost(t)
			eachState(func(from verbs.QPState) {
				if from == verbs.QPStateSQE && typ != verbs.QPTypeUC && typ != verbs.QPTypeUD {
					return // reliable QPs have no SQE
				}
				still := h.in(typ, from)
				eachState(func(to verbs.QPState) {
					r, ok := h.rules[matrixEdge{typ, from, to}]
					if !ok {
						h.rejects(still, to, 0, "no such transition")
						h.rejects(still, to, ^verbs.QPAttrMask(0), "no such transition")
						return
					}
					h.accepts(typ, from, to, r.must)
					h.accepts(typ, from, to, r.must|r.may)
					for attr, bit := range attrNames {
						switch {
						case r.must&bit != 0:
							h.rejects(still, to, (r.must|r.may)&^bit, "lacks "+attr)
						case r.may&bit != 0:
							h.accepts(typ, from, to, r.must|bit)
						default:
							h.rejects(still, to, r.must|bit, "has "+attr)
						}
					}
					h.rejects(still, to, r.must|1<<25, "has an attribute that does not exist")
				})
			})
		})
	}
}

func (h *matrixHost) accepts(typ verbs.QPType, from, to verbs.QPState, mask verbs.QPAttrMask) {
	h.t.Helper()
	q := h.in(typ, from)
	if err := q.Modify(0, h.attr(from, to), mask|verbs.QPAttrState); err != nil {
		h.t.Errorf("%v with %v: %v", typ, mask, err)
	} else if q.state != to || q.Query().State != to {
		h.t.Errorf("%v is in %v after Modify to %v", typ, q.state, to)
	}
	must.Do(h.t, h.nic.DestroyQP(q))
}

func (h *matrixHost) rejects(q *QP, to verbs.QPState, mask verbs.QPAttrMask, why string) {
	h.t.Helper()
	expectUnchanged(h.t.(*testing.T), q, func() {
		err := q.Modify(0, h.attr(q.state, to), mask|verbs.QPAttrState)
		if !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), "modify_qp "+q.name()) {
			h.t.Errorf("%v from %v to %v, %s: %v", q.cfg.Type, q.state, to, why, err)
		}
	})
}

// qp/1: A QP can leave RTS by itself. Modify fails if the given current state is
// wrong or has no transition to RTS.
func TestModifyQPChecksCurState(t *testing.T) {
	h := newMatrixHost(t)
	eachState(func(from verbs.QPState) {
		rule, ok := h.rules[matrixEdge{verbs.QPTypeUC, from, verbs.QPStateRTS}]
		if !ok {
			return
		}
		q := h.in(verbs.QPTypeUC, from)
		eachState(func(named verbs.QPState) {
			if named == from {
				return
			}
			expectUnchanged(t, q, func() {
				a := h.attr(named, verbs.QPStateRTS)
				must.Fail(t, fmt.Sprintf("in %v with current state %v", from, named), q.Modify(0, a, rule.must|verbs.QPAttrState|verbs.QPAttrCurState), verbs.ErrInvalid)
			})
		})
		h.modify(q, h.attr(from, verbs.QPStateRTS), rule.must|verbs.QPAttrState|verbs.QPAttrCurState)
	})
}

// qp/2: Modify with one invalid value fails and changes no attribute.
func TestModifyQPWithInvalidValueChangesNothing(t *testing.T) {
	type wrong struct {
		name string
		edit func(*verbs.QPAttr)
	}
	for _, tc := range []struct {
		from, to verbs.QPState
		wrong    []wrong
	}{
		{verbs.QPStateReset, verbs.QPStateInit, []wrong{
			{"port 0", func(a *verbs.QPAttr) { a.Port = 0 }},
			{"port 2", func(a *verbs.QPAttr) { a.Port = 2 }},
			{"P_Key index 1 of 1", func(a *verbs.QPAttr) { a.PKeyIndex = 1 }},
		}},
		{verbs.QPStateInit, verbs.QPStateRTR, []wrong{
			{"path MTU 0", func(a *verbs.QPAttr) { a.PathMTU = 0 }},
			{"path MTU code 6", func(a *verbs.QPAttr) { a.PathMTU = 6 }},
			{"path MTU beyond the port's", func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU4096 }},
			{"address vector for port 0", func(a *verbs.QPAttr) { a.AH.Port = 0 }},
			{"GID index 1 of 1", func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = 1 }},
			{"peer of the other IP version", func(a *verbs.QPAttr) { a.AH.GRH.DGID = verbs.GIDFrom(unrelated) }},
			{"multicast QPN", func(a *verbs.QPAttr) { a.DestQPN = 0xffffff }},
			{"QPN of 25 bits", func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 }},
			{"PSN of 25 bits", func(a *verbs.QPAttr) { a.RQPSN = 1 << 24 }},
			{"max_dest_rd_atomic beyond the limit", func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 17 }},
			{"RNR timer code 32", func(a *verbs.QPAttr) { a.MinRNRTimer = 32 }},
			{"P_Key index 1 of 1", func(a *verbs.QPAttr) { a.PKeyIndex = 1 }},
			{"alternate P_Key index", func(a *verbs.QPAttr) { a.AltPKeyIndex = 1 }},
			{"alternate port", func(a *verbs.QPAttr) { a.AltPort = 2 }},
			{"alternate address vector's port", func(a *verbs.QPAttr) { a.AltAH.Port = 2 }},
			{"alternate timeout code", func(a *verbs.QPAttr) { a.AltTimeout = 32 }},
			{"alternate GID index", func(a *verbs.QPAttr) { a.AltAH.GRH.SGIDIndex = 7 }},
			{"alternate peer of the other IP version", func(a *verbs.QPAttr) { a.AltAH.GRH.DGID = verbs.GIDFrom(unrelated) }},
		}},
		{verbs.QPStateRTR, verbs.QPStateRTS, []wrong{
			{"PSN of 25 bits", func(a *verbs.QPAttr) { a.SQPSN = 1 << 24 }},
			{"timeout code 32", func(a *verbs.QPAttr) { a.Timeout = 32 }},
			{"retry_cnt 8", func(a *verbs.QPAttr) { a.RetryCnt = 8 }},
			{"rnr_retry 8", func(a *verbs.QPAttr) { a.RNRRetry = 8 }},
			{"max_rd_atomic beyond the limit", func(a *verbs.QPAttr) { a.MaxRdAtomic = 17 }},
			{"ARMED, which cannot be requested", func(a *verbs.QPAttr) { a.PathMigState = verbs.MigArmed }},
			{"unknown migration state", func(a *verbs.QPAttr) { a.PathMigState = 3 }},
		}},
	} {
		h := newMatrixHost(t)
		h.nic.cfg.LinkMTU, h.nic.cfg.Limits.RdAtomic = 1500, 16
		rule := h.rules[matrixEdge{verbs.QPTypeRC, tc.from, tc.to}]
		all := rule.must | rule.may | verbs.QPAttrState
		q := h.in(verbs.QPTypeRC, tc.from)
		for _, w := range tc.wrong {
			t.Run(fmt.Sprintf("%v %s", tc.to, w.name), func(t *testing.T) {
				a := h.attr(tc.from, tc.to)
				w.edit(&a)
				expectUnchanged(t, q, func() {
					err := q.Modify(0, a, all)
					if !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), "modify_qp "+q.name()) {
						t.Errorf("got %v", err)
					}
				})
			})
		}
		h.modify(q, h.attr(tc.from, tc.to), all)
	}
}

// qp/2: Values at their limits are accepted and returned by Query (qp/11).
func TestModifyQPAcceptsLimits(t *testing.T) {
	h := newMatrixHost(t)
	q := h.in(verbs.QPTypeRC, verbs.QPStateInit)
	a := h.attr(verbs.QPStateInit, verbs.QPStateRTR)
	a.PathMTU, a.DestQPN, a.RQPSN, a.MaxDestRdAtomic, a.MinRNRTimer = verbs.MTU4096, 0xfffffe, 0xffffff, 128, 31
	h.modify(q, a, rcRTR)
	a.State, a.SQPSN, a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = verbs.QPStateRTS, 0xffffff, 31, 7, 7, 128
	h.modify(q, a, rcRTS)
	got := q.Query()
	got.Caps, got.CurState, a.CurState = verbs.QPCaps{}, 0, 0
	a.AltAH, a.AltPort, a.AltTimeout = verbs.AHAttr{}, 0, 0 // not in the mask
	if got != a {
		t.Errorf("got  %+v\nwant %+v", got, a)
	}
	for _, n := range []uint8{0, 1, 3, 5, 127} {
		q := h.in(verbs.QPTypeRC, verbs.QPStateSQD)
		h.modify(q, verbs.QPAttr{MaxRdAtomic: n, MaxDestRdAtomic: n}, verbs.QPAttrMaxQPRdAtomic|verbs.QPAttrMaxDestRdAtomic)
		if got := q.Query(); got.MaxRdAtomic != n || got.MaxDestRdAtomic != n {
			t.Errorf("requested %d, got %d and %d", n, got.MaxRdAtomic, got.MaxDestRdAtomic)
		}
	}
}
