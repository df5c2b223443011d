package random

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// controlInterval is how often an end polls the Exchange while it waits for completions.
	controlInterval = 200 * time.Microsecond
	// minPollInterval is the first sleep of an end that polls. It doubles up to controlInterval.
	minPollInterval = time.Microsecond
)

// traffic posts requests and handles completions until both ends have completed.
func (e *End) traffic() error {
	e.startedAt = e.proc.Now()
	e.lastProgress = e.startedAt
	doneSent := false
	for {
		progressed, err := e.step()
		if err != nil {
			return err
		}
		if e.env.OnStep != nil {
			e.env.OnStep()
		}
		done := e.complete()
		switch {
		case done && !doneSent:
			doneSent = true
			r := new(report) // the result of this end's requests
			for _, c := range e.conns {
				r.Conns = append(r.Conns, connReport{Good: c.outgoing.succeeded, Failed: c.outgoing.qpFailed})
			}
			if err := e.sendControl(controlMessage{Kind: controlDone, Report: r}); err != nil {
				return err
			}
		case progressed: // do not wait
		case done && e.peerDone != nil:
			return e.waitForLatePackets()
		default:
			if err := e.waitForEvent(done); err != nil {
				return err
			}
		}
	}
}

// complete reports whether every connection has completed.
func (e *End) complete() bool {
	return !slices.ContainsFunc(e.conns, func(c *conn) bool { return !c.complete() })
}

// step posts requests and polls completions. It reports whether there was progress.
func (e *End) step() (bool, error) {
	progressed := false
	now := e.proc.Now()
	for _, p := range e.posters {
		posted, err := p.post(now)
		if err != nil {
			return progressed, err
		}
		progressed = progressed || posted
	}
	n, err := e.poll()
	if progressed = progressed || n > 0; progressed {
		e.lastProgress = e.proc.Now()
	}
	return progressed, err
}

// poster posts receives or requests at the times of a pacer.
type poster interface {
	post(now time.Duration) (posted bool, err error)
	space() int              // how many may be posted
	nextTime() time.Duration // not before
}

// nextPostTime is the time of the next paced post; negative if none is pending.
func (e *End) nextPostTime() time.Duration {
	at := verbs.Forever
	for _, p := range e.posters {
		if next := p.nextTime(); p.space() > 0 && (at < 0 || next < at) {
			at = next
		}
	}
	return at
}

// waitForEvent waits until completions or a control message arrive, or pacing permits a post. done
// is set if all connections of this end have completed.
func (e *End) waitForEvent(done bool) error {
	now := e.proc.Now()
	wait := verbs.Forever
	shorten := func(d time.Duration) {
		if wait < 0 || d < wait {
			wait = d
		}
	}
	if timeout := e.env.StallTimeout; timeout > 0 {
		left := e.lastProgress + timeout - now
		if left <= 0 {
			return &traffic.StallError{After: timeout, Status: e.Status()}
		}
		shorten(left)
	}
	if done && !e.hasUnreliableConns() {
		// Only the final control message of the peer is missing.
		msg, err := e.receiveControl(wait)
		if err != nil || msg == nil {
			return err
		}
		return e.handleControl(msg)
	}
	if at := e.nextPostTime(); at >= 0 {
		shorten(max(at-now, 0))
	}
	// In these cases a control message, or the end of the peer, may be what this end waits for.
	if done || e.hasUnreliableConns() || e.w.Network.GivesUp || e.env.DetectPeerEnd {
		msg, err := e.receiveControl(0)
		if err != nil {
			return err
		}
		if msg != nil {
			return e.handleControl(msg)
		}
		shorten(controlInterval)
	}
	return e.wait(wait)
}

// hasUnreliableConns reports whether messages may arrive after the peer has completed.
func (e *End) hasUnreliableConns() bool {
	return slices.ContainsFunc(e.conns, func(c *conn) bool { return !c.spec.Service.Reliable() })
}

// waitCompletions handles completions that have arrived, or else waits for some, up to the stall
// timeout. It handles no control messages.
func (e *End) waitCompletions() error {
	n, err := e.poll()
	if n > 0 || err != nil {
		return err
	}
	return e.wait(e.stallTimeout())
}

// wait returns when completions have arrived, or after d. It may return earlier. With ByPolling it
// only sleeps until the next poll, for longer the longer nothing has happened, whatever d is.
func (e *End) wait(d time.Duration) error {
	if e.w.Wakeup == ByPolling {
		idle := e.proc.Now() - e.lastProgress
		e.proc.Sleep(min(max(idle, minPollInterval), controlInterval))
		return nil
	}
	solicited := e.w.Wakeup == BySolicited
	for _, cq := range e.CQs {
		if err := cq.ReqNotify(solicited); err != nil {
			return err
		}
	}
	// Completions before ReqNotify raise no event.
	n, err := e.poll()
	if n > 0 || err != nil {
		return err
	}
	if solicited && (d < 0 || d > controlInterval) {
		d = controlInterval // completions that are not solicited raise no event
	}
	if _, err := e.Channel.Wait(d); err != nil && !errors.Is(err, verbs.ErrTimeout) {
		return err
	}
	return nil
}

// poll handles all completions in the completion queues, and returns how many there were.
func (e *End) poll() (total int, err error) {
	var wcs [32]verbs.WC
	for _, cq := range e.CQs {
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
		e.lastCompletion = e.proc.Now()
	}
	return total, nil
}

// completed handles a completion by its work request ID. It is the ID of a receive in a ring, or
// its upper bits (connShift) name a connection and the lower ones a request: one of the plan, with
// markerBit the last request of a failed queue pair or, with windowsBit, the bind of a window.
func (e *End) completed(wc *verbs.WC) error {
	unknown := func() error {
		return &Violation{Kind: traffic.Completion, Where: fmt.Sprintf("QP %#x", wc.QPN), Want: "completions of posted requests", Got: fmt.Sprintf("one with ID %#x", wc.WRID)}
	}
	if i, ok := traffic.RingOf(wc.WRID); ok {
		if i >= len(e.rings) {
			return unknown()
		}
		return e.received(wc, e.rings[i])
	}
	i := int(wc.WRID >> connShift)
	if i >= len(e.conns) {
		return unknown()
	}
	c := e.conns[i]
	n := int(wc.WRID & (1<<connShift - 1))
	switch {
	case n&markerBit != 0:
		return c.outgoing.drainMarkerFlushed(wc)
	case n&windowsBit == 0:
		return c.outgoing.completed(wc, n)
	}
	if n&^windowsBit != c.binds || wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpBindMW {
		return c.violation(e.side, fmt.Sprintf("window %d bound", c.binds), fmt.Sprintf("%v for window %d", wc.Status, n&^windowsBit))
	}
	c.binds++
	return nil
}

// received passes a completed receive to its connection.
func (e *End) received(wc *verbs.WC, r *recvRing) error {
	c := e.byQPN[wc.QPN]
	if c == nil || r.conn != nil && r.conn != c || c.Receiver().QPN() != wc.QPN {
		return &Violation{Kind: traffic.Completion, Where: fmt.Sprintf("receive queue %d", r.num), Want: "a QP that receives from it", Got: fmt.Sprintf("QP %#x", wc.QPN)}
	}
	slot, err := r.Complete(wc.WRID)
	if err != nil {
		return c.violation(e.side.Peer(), "each receive completed once, in order", err.Error())
	}
	if wc.Status != verbs.WCSuccess {
		return c.receiveFailed(wc)
	}
	return c.incoming.receive(wc, r, slot)
}
