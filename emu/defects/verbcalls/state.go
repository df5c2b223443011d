package verbcalls

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// Modify changes attributes.
func (p *pair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	q := &p.d.q
	if q.OptionalAttrsRefused && p.more(a.State, mask) {
		return refused("modify_qp", verbs.ErrInvalid, "more attributes than are needed")
	}
	if q.ErrorIsFinal && mask&verbs.QPAttrState != 0 && a.State == verbs.QPStateReset && p.state() == verbs.QPStateErr {
		return refused("modify_qp", verbs.ErrInvalid, "it has failed")
	}
	if q.ResetFlushes && mask&verbs.QPAttrState != 0 && a.State == verbs.QPStateReset {
		p.flush()
	}
	p.replace(&a, &mask)
	err := p.QP.Modify(a, mask)
	switch {
	case err == nil:
		p.remember(a, mask)
		p.postRefused()
		return nil
	case q.RefusalKills:
		p.kill()
	case q.ModifyLies && errors.Is(err, verbs.ErrInvalid):
		return nil
	}
	return p.answers(err)
}

// more reports whether a change has attributes that it need not have.
func (p *pair) more(to verbs.QPState, mask verbs.QPAttrMask) bool {
	optional := verbs.QPAttrPKeyIndex | verbs.QPAttrQKey | verbs.QPAttrAccessFlags | verbs.QPAttrEnSQDAsyncNotify
	if mask&verbs.QPAttrState == 0 {
		to = verbs.QPStateInit
	}
	switch to {
	case verbs.QPStateRTR:
	case verbs.QPStateRTS, verbs.QPStateSQD:
		optional |= verbs.QPAttrCurState | verbs.QPAttrMinRNRTimer
	case verbs.QPStateInit:
		if p.state() != verbs.QPStateInit {
			return false
		}
		optional |= verbs.QPAttrCurState | verbs.QPAttrMinRNRTimer
	default:
		return false
	}
	return mask&optional != 0
}

// state is the true one.
func (p *pair) state() verbs.QPState {
	a, _ := p.QP.Query() // one that is closed is as good as reset
	return a.State
}

// to takes the queue pair to a state that needs no attributes.
func (p *pair) to(s verbs.QPState) error {
	return p.QP.Modify(verbs.QPAttr{State: s}, verbs.QPAttrState)
}

// flush lets all that was posted complete in error, for ResetFlushes to be polled
// after a reset, which would take it back.
func (p *pair) flush() {
	if s := p.state(); s == verbs.QPStateReset || s == verbs.QPStateErr || p.to(verbs.QPStateErr) != nil {
		return
	}
	for _, c := range []*queue{p.send, p.recv} {
		if c != nil {
			_ = c.fill() // what fails here fails when it is polled
		}
	}
}

// kill takes the queue pair to ERR. From RESET that is a way by INIT, where one type
// needs rights and the other a key.
func (p *pair) kill() {
	if p.state() == verbs.QPStateReset {
		const both = verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex
		a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1}
		if p.QP.Modify(a, both|verbs.QPAttrAccessFlags) != nil {
			_ = p.QP.Modify(a, both|verbs.QPAttrQKey)
		}
	}
	_ = p.to(verbs.QPStateErr) // a device may not have that way
}

// remember keeps what was set, for QueryStale.
func (p *pair) remember(a verbs.QPAttr, mask verbs.QPAttrMask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mask&verbs.QPAttrState != 0 {
		p.set.State = a.State
	}
	if mask&verbs.QPAttrSQPSN != 0 {
		p.set.SQPSN = a.SQPSN
	}
	if mask&verbs.QPAttrRQPSN != 0 {
		p.set.RQPSN = a.RQPSN
	}
}

// learn takes what somebody else has set for what was set.
func (p *pair) learn() {
	if a, err := p.QP.Query(); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.set = a
	}
}

// Query returns the attributes, or some, or those of before.
func (p *pair) Query() (verbs.QPAttr, error) {
	a, err := p.QP.Query()
	if err != nil {
		return verbs.QPAttr{}, p.answers(err)
	}
	q := &p.d.q
	if q.QueryForgets {
		a = verbs.QPAttr{State: a.State, CurState: a.CurState, Caps: a.Caps}
	}
	if q.QueryStale {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.State, a.CurState, a.SQPSN, a.RQPSN = p.set.State, p.set.State, p.set.SQPSN, p.set.RQPSN
	}
	a.SQDraining = a.SQDraining || q.SQNeverDrains && a.State == verbs.QPStateSQD
	if q.ResetReadsInit {
		for _, s := range []*verbs.QPState{&a.State, &a.CurState} {
			if *s == verbs.QPStateReset {
				*s = verbs.QPStateInit
			}
		}
	}
	return a, nil
}
