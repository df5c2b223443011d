package workload

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// spinTicks is how many ticks a spinning rank polls without sleeping.
	spinTicks = 20
	// railPollInterval is how long a rank with several rails waits for events of one of
	// them.
	railPollInterval = 50 * time.Microsecond
)

// stallTimeout is how long there may be no progress. It is long enough for requests to
// exhaust their retries.
func (n *node) stallTimeout() time.Duration {
	if n.rank.StallTimeout <= 0 {
		return verbs.Forever
	}
	code, _ := n.cfg.timing(n.rank.Concurrent)
	// Devices may take up to four times the timeout for each retry.
	return max(n.rank.StallTimeout, 4*ackTimeoutOf(code)*time.Duration(*n.cfg.Retries+1)+n.cfg.Pause)
}

// waitForEvent waits for completions, notes or timers.
func (n *node) waitForEvent() error {
	n.publish()
	wait := min(max(n.tick(), n.now-n.lastProgress), maxTicks*n.tick())
	if n.nextTimer > 0 {
		wait = min(wait, max(n.nextTimer-n.now, 0))
	}
	if p := n.stallTimeout(); p > 0 {
		left := n.lastProgress + p - n.now
		if left <= 0 {
			return &traffic.StallError{After: p, Status: n.Status()}
		}
		wait = min(wait, left)
	}
	if n.cfg.Spin && n.railsInUse() > 0 {
		if idle := n.now - n.lastProgress; idle > spinTicks*n.tick() {
			n.proc.Sleep(min(idle/spinTicks, wait))
		}
		return nil
	}
	n.nextNotePoll = 0 // poll as soon as the wait is over
	if p := n.awaitedPeer(); p != nil {
		_, err := n.receiveNotes(p, wait)
		return err
	}
	return n.waitCompletion(wait)
}

// railsInUse counts the rails with queue pairs.
func (n *node) railsInUse() (used int) {
	for _, r := range n.rails {
		if r.openQPs > 0 {
			used++
		}
	}
	return used
}

// awaitedPeer returns a peer whose note the rank waits for; nil if a queue pair is
// connected.
func (n *node) awaitedPeer() *peer {
	var waited *peer
	for _, c := range n.conns {
		switch c.state {
		case connUp, connDraining:
			return nil
		case connAwaitingInfo, connAwaitingReady:
			if c.cfg.CM {
				return nil
			}
			if waited == nil && !c.peer.gone {
				waited = c.peer
			}
		}
	}
	return waited
}

// waitCompletion returns when completions may have arrived, or after d.
func (n *node) waitCompletion(d time.Duration) error {
	used := n.railsInUse()
	for _, r := range n.rails {
		if r.openQPs == 0 || r.armed {
			continue
		}
		if err := r.cq.ReqNotify(false); err != nil {
			return err
		}
		r.armed = true
	}
	// Completions before ReqNotify raise no event.
	if did, err := n.poll(); did || err != nil {
		n.lastProgress = n.now
		return err
	}
	if used == 0 {
		n.proc.Sleep(d)
		return nil
	}
	if used > 1 {
		d = min(d, max(railPollInterval, n.pollBackoff()))
	}
	for n.rails[n.waitRail%len(n.rails)].openQPs == 0 {
		n.waitRail++
	}
	r := n.rails[n.waitRail%len(n.rails)]
	switch _, err := r.channel.Wait(d); {
	case errors.Is(err, verbs.ErrTimeout):
		n.waitRail++
		return nil
	case err != nil:
		return err
	}
	r.armed = false
	return nil
}
