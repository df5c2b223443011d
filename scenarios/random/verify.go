package random

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// latePacketTime is how long packets of unreliable lanes may still arrive after both ends
// have completed.
const latePacketTime = 20 * time.Millisecond

// waitForLatePackets waits for late packets of unreliable lanes.
func (e *End) waitForLatePackets() error {
	if !e.hasUnreliableLanes() {
		return nil
	}
	until := e.proc.Now() + latePacketTime
	for now := e.proc.Now(); now < until; now = e.proc.Now() {
		n, err := e.poll()
		if err == nil && n == 0 {
			err = e.wait(until - now)
		}
		if err != nil {
			return err
		}
	}
	_, err := e.poll()
	return err
}

// verify checks memory and shared words, and that all posted receives are flushed.
func (e *End) verify() error {
	e.endedAt = max(e.lastCompletion, e.startedAt)
	for i, l := range e.lanes {
		if l.flushes > 0 && !l.outgoing.qpFailed && !l.errorExpected {
			return l.violation(e.side.Peer(), 0, nil, "no flush without a failure", fmt.Sprintf("%d receives flushed", l.flushes))
		}
		if err := l.incoming.verify(&e.peerDone.Lanes[i]); err != nil {
			return err
		}
	}
	if e.w.Traits.ConnectsByCM {
		// The peer may disconnect as soon as it has our words, which moves our queue pairs
		// to the error state.
		for _, l := range e.lanes {
			l.errorExpected = true
		}
	}
	if err := e.sendNote(note{Kind: noteWords, Words: e.words.values()}); err != nil {
		return err
	}
	n, err := e.expect(noteWords)
	if err != nil {
		return err
	}
	if err := e.words.check(n.Words); err != nil {
		return err
	}
	if err := e.drain(); err != nil {
		return err
	}
	if err := e.sendNote(note{Kind: noteClose}); err != nil {
		return err
	}
	_, err = e.expect(noteClose)
	return err
}

// drain moves the queue pairs to the error state and waits until their receives are
// flushed. Shared receives stay posted.
func (e *End) drain() error {
	for _, l := range e.lanes {
		for _, qp := range []verbs.QP{l.qp, l.target} {
			if qp == nil {
				continue
			}
			if err := l.toError(qp); err != nil {
				return err
			}
		}
		for l.ring != nil && l.ring.Outstanding() > 0 {
			if err := e.waitCompletions(); err != nil {
				return err
			}
		}
	}
	if n, err := e.poll(); err != nil || n == 0 {
		return err
	}
	_, err := e.poll()
	return err
}

func isTimeout(err error) bool { return errors.Is(err, verbs.ErrTimeout) }
