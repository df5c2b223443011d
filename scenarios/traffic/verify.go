package traffic

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// settleTime is how long packets of unreliable lanes may still be under way
// when both ends have nothing more to send.
const settleTime = 20 * time.Millisecond

// settle waits for stragglers.
func (e *End) settle() error {
	if !e.listens() {
		return nil
	}
	until := e.proc.Now() + settleTime
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

// verify checks memory and shared words, and that everything posted completes:
// what is still queued is flushed.
func (e *End) verify() error {
	e.ended = max(e.lastDone, e.began)
	for i, l := range e.lanes {
		if l.flushes > 0 && !l.out.dead && !l.shutting {
			return &Violation{Where: l.where(e.side.Peer(), 0, nil), Want: "no flush without a failure", Got: fmt.Sprintf("%d receives flushed", l.flushes)}
		}
		if err := l.in.verify(&e.peerDone.Lanes[i]); err != nil {
			return err
		}
	}
	if e.w.Traits.ConnectsByCM {
		// The peer's queue pairs take ours with them when it shuts them, which it may
		// do as soon as it has our words.
		for _, l := range e.lanes {
			l.shutting = true
		}
	}
	if err := e.tell(note{Kind: noteWords, Words: e.words.values()}); err != nil {
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
	if err := e.tell(note{Kind: noteBye}); err != nil {
		return err
	}
	_, err = e.expect(noteBye)
	return err
}

// drain shuts the queue pairs and waits until each receive of their own has
// come back. Shared receives stay where they are.
func (e *End) drain() error {
	for _, l := range e.lanes {
		for _, qp := range []verbs.QP{l.qp, l.target} {
			if qp == nil {
				continue
			}
			if err := l.shut(qp); err != nil {
				return err
			}
		}
		for l.ring != nil && l.ring.outstanding() > 0 {
			if err := e.await(); err != nil {
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
