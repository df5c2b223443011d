package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// How often a rank looks for notes of its peers while completions come, and how
// long it waits for the latter at a time.
const (
	simTick  = 100 * time.Microsecond
	realTick = time.Millisecond
	maxTicks = 32 // a wait grows to so many while nothing happens
	// spinFor is how many ticks a rank that polls goes on polling in vain before
	// it rests between looks.
	spinFor = 20
	// severalRails is how long one rail's events are waited for before the others
	// are looked at, as long as something happens.
	severalRails = 50 * time.Microsecond
)

// StallError is a program whose Patience is exhausted.
type StallError struct {
	After  time.Duration
	Status string // as Program.Status says
}

// Error says what the program was waiting for.
func (e *StallError) Error() string {
	return fmt.Sprintf("nothing happened for %v: %s", e.After, e.Status)
}

func (n *node) tick() time.Duration {
	if n.rank.Concurrent {
		return realTick
	}
	return simTick
}

// patience is how long nothing may happen. It is never so short that a request
// could not fail first for want of an answer.
func (n *node) patience() time.Duration {
	if n.rank.StallTimeout <= 0 {
		return verbs.Forever
	}
	code, _ := n.cfg.timing(n.rank.Concurrent)
	// Devices may take up to four times the timeout, for each of the tries.
	return max(n.rank.StallTimeout, 4*timeoutOf(code)*time.Duration(*n.cfg.Retries+1)+n.cfg.Pause)
}

// idle waits for something to happen.
func (n *node) idle() error {
	n.publish()
	wait := min(max(n.tick(), n.now-n.lastMove), maxTicks*n.tick())
	if n.nextTimer > 0 {
		wait = min(wait, max(n.nextTimer-n.now, 0))
	}
	if p := n.patience(); p > 0 {
		left := n.lastMove + p - n.now
		if left <= 0 {
			return &StallError{After: p, Status: n.Status()}
		}
		wait = min(wait, left)
	}
	if n.cfg.Spin && n.inUse() > 0 {
		if idle := n.now - n.lastMove; idle > spinFor*n.tick() {
			n.proc.Sleep(min(idle/spinFor, wait))
		}
		return nil
	}
	n.nextLook = 0 // look as soon as the wait is over
	if p := n.silent(); p != nil {
		_, err := n.hear(p, wait)
		return err
	}
	return n.await(wait)
}

// dozing is how long a wait may be that nothing would cut short: the longer
// nothing has happened, the longer.
func (n *node) dozing() time.Duration { return (n.now - n.lastMove) / 8 }

// inUse counts the rails that have queue pairs.
func (n *node) inUse() (used int) {
	for _, r := range n.rails {
		if r.open > 0 {
			used++
		}
	}
	return used
}

// silent returns a peer to wait for if nothing can happen without its word: no
// queue pair is connected.
func (n *node) silent() *peer {
	var waited *peer
	for _, c := range n.conns {
		switch c.state {
		case connUp, connDraining:
			return nil
		case connCalling, connReady:
			if c.n.cfg.CM {
				return nil
			}
			if waited == nil && !c.gone() {
				waited = n.peers[c.peer]
			}
		}
	}
	return waited
}

// await returns when completions may have come, or d has passed.
func (n *node) await(d time.Duration) error {
	used := n.inUse()
	for _, r := range n.rails {
		if r.open == 0 || r.armed {
			continue
		}
		if err := r.cq.ReqNotify(false); err != nil {
			return err
		}
		r.armed = true
	}
	// What came before would raise no event.
	if did, err := n.poll(); did || err != nil {
		n.lastMove = n.now
		return err
	}
	if used == 0 {
		n.proc.Sleep(d)
		return nil
	}
	if used > 1 {
		d = min(d, max(severalRails, n.dozing()))
	}
	for n.rails[n.favourite%len(n.rails)].open == 0 {
		n.favourite++
	}
	r := n.rails[n.favourite%len(n.rails)]
	switch _, err := r.channel.Wait(d); {
	case errors.Is(err, verbs.ErrTimeout):
		n.favourite++
		return nil
	case err != nil:
		return err
	}
	r.armed = false
	return nil
}
