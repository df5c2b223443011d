package traffic

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// tick is how often an end looks for a note of the peer's while it waits
	// for completions.
	tick = 200 * time.Microsecond
	// pollGap is how long an end that polls rests when it first finds nothing;
	// twice as long each time after that, up to a tick.
	pollGap = time.Microsecond
)

// traffic posts, and takes completions, until both ends have nothing left.
func (e *End) traffic() error {
	e.began = e.proc.Now()
	e.lastMove = e.began
	told := false
	for {
		moved, err := e.step()
		if err != nil {
			return err
		}
		if e.env.OnStep != nil {
			e.env.OnStep()
		}
		done := e.complete()
		switch {
		case done && !told:
			told = true
			if err := e.tell(note{Kind: noteDone, Report: e.report()}); err != nil {
				return err
			}
		case moved:
		case done && e.peerDone != nil:
			return e.settle()
		default:
			if err := e.idle(done); err != nil {
				return err
			}
		}
	}
}

func (e *End) complete() bool {
	for _, l := range e.lanes {
		if !l.complete() {
			return false
		}
	}
	return true
}

func (e *End) report() *report {
	r := new(report)
	for _, l := range e.lanes {
		r.Lanes = append(r.Lanes, laneReport{Good: l.out.good, Failed: l.out.dead})
	}
	return r
}

// step posts what it may and takes what has completed. It reports whether
// anything moved.
func (e *End) step() (bool, error) {
	moved := false
	now := e.proc.Now()
	for _, r := range e.rings {
		did, err := r.post(now)
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	for _, l := range e.lanes {
		did, err := l.out.post(now)
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	n, err := e.poll()
	if moved = moved || n > 0; moved {
		e.lastMove = e.proc.Now()
	}
	return moved, err
}

// nextBeat is when something may be posted that may not be now; negative if
// nothing waits for its time.
func (e *End) nextBeat() time.Duration {
	at := verbs.Forever
	wants := func(m *metronome, space int) {
		if space > 0 && (at < 0 || m.next < at) {
			at = m.next
		}
	}
	for _, r := range e.rings {
		wants(&r.beats, r.space())
	}
	for _, l := range e.lanes {
		wants(&l.out.beats, l.out.space())
	}
	return at
}

// idle waits for something to happen.
func (e *End) idle(done bool) error {
	now := e.proc.Now()
	wait := verbs.Forever
	shorten := func(d time.Duration) {
		if wait < 0 || d < wait {
			wait = d
		}
	}
	if p := e.env.StallTimeout; p > 0 {
		left := e.lastMove + p - now
		if left <= 0 {
			return &StallError{After: p, Status: e.Status()}
		}
		shorten(left)
	}
	if done && !e.listens() {
		// Nothing can complete any more: only the peer's word is missing.
		n, err := e.hear(wait)
		if err != nil || n == nil {
			return err
		}
		return e.heard(n)
	}
	if at := e.nextBeat(); at >= 0 {
		shorten(max(at-now, 0))
	}
	if done || e.listens() || e.w.Network.GivesUp || e.env.DetectPeerEnd {
		n, err := e.hear(0)
		if err != nil {
			return err
		}
		if n != nil {
			return e.heard(n)
		}
		shorten(tick)
	}
	return e.wait(wait)
}

// listens reports whether messages may come that the peer does not announce.
func (e *End) listens() bool {
	for _, l := range e.lanes {
		if !l.spec.Service.Reliable() {
			return true
		}
	}
	return false
}

// await waits for completions alone.
func (e *End) await() error {
	n, err := e.poll()
	if n > 0 || err != nil {
		return err
	}
	return e.wait(e.patience())
}

// wait returns when completions have come or d has passed.
func (e *End) wait(d time.Duration) error {
	if e.w.Wakeup == ByPolling {
		idle := e.proc.Now() - e.lastMove
		e.proc.Sleep(min(max(idle, pollGap), tick))
		return nil
	}
	solicited := e.w.Wakeup == BySolicited
	for _, cq := range e.cqs {
		if err := cq.ReqNotify(solicited); err != nil {
			return err
		}
	}
	// What came before would raise no event.
	n, err := e.poll()
	if n > 0 || err != nil {
		return err
	}
	if solicited && (d < 0 || d > tick) {
		d = tick
	}
	if _, err := e.channel.Wait(d); err != nil && !isTimeout(err) {
		return err
	}
	return nil
}

// poll takes what has completed.
func (e *End) poll() (total int, err error) {
	var wcs [32]verbs.WC
	for _, cq := range e.cqs {
		for {
			n, err := cq.Poll(wcs[:])
			if err != nil {
				return total, err
			}
			for i := range n {
				if err := e.completed(&wcs[i]); err != nil {
					return total, err
				}
			}
			if total += n; n < len(wcs) {
				break
			}
		}
	}
	if total > 0 {
		e.lastDone = e.proc.Now()
	}
	return total, nil
}

// completed hands a completion to the lane that it belongs to.
func (e *End) completed(wc *verbs.WC) error {
	unknown := func() error {
		return &Violation{Where: fmt.Sprintf("QP %#x", wc.QPN), Want: "completions of posted requests", Got: fmt.Sprintf("one with ID %#x", wc.WRID)}
	}
	if wc.WRID&recvID != 0 {
		i := int(wc.WRID &^ recvID >> ringShift)
		if i >= len(e.rings) {
			return unknown()
		}
		return e.received(wc, e.rings[i])
	}
	i := int(wc.WRID >> laneShift)
	if i >= len(e.lanes) {
		return unknown()
	}
	l := e.lanes[i]
	n := int(wc.WRID & (1<<laneShift - 1))
	switch {
	case n&markerBit != 0:
		return l.out.unmark(wc)
	case n&windowsBit == 0:
		return l.out.completed(wc, n)
	}
	if n&^windowsBit != l.binds || wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpBindMW {
		return &Violation{Where: l.where(e.side, 0, nil), Want: fmt.Sprintf("window %d bound", l.binds), Got: fmt.Sprintf("%v for window %d", wc.Status, n&^windowsBit)}
	}
	l.binds++
	return nil
}

// received hands a completed receive to its lane.
func (e *End) received(wc *verbs.WC, r *ring) error {
	l := e.byQPN[wc.QPN]
	if l == nil || r.lane != nil && r.lane != l || l.receiver().QPN() != wc.QPN {
		return &Violation{Where: fmt.Sprintf("receive queue %d", r.num), Want: "a QP that receives from it", Got: fmt.Sprintf("QP %#x", wc.QPN)}
	}
	s, err := r.take(wc)
	if err != nil {
		return &Violation{Where: l.where(e.side.Peer(), 0, nil), Want: "each receive completed once, in order", Got: err.Error()}
	}
	if wc.Status != verbs.WCSuccess {
		return l.flushed(wc)
	}
	return l.in.arrived(wc, r, s)
}
