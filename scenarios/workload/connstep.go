package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Limits of reconnecting to a peer that cannot be reached.
const (
	firstBackoff          = time.Millisecond
	lastBackoff           = 128 * time.Millisecond
	maxBackoffShift       = 20 // reaches lastBackoff, and does not overflow
	maxFailedIncarnations = 60
)

// step advances the state of the connection as far as possible. moved is false if nothing changed.
func (c *conn) step() (moved bool, err error) {
	for {
		before := c.state
		did := false
		switch c.state {
		case connWaiting:
			err = c.stepWaiting()
		case connAwaitingInfo, connAwaitingReady:
			err = c.stepConnecting()
		case connUp:
			did, err = c.stepUp()
		case connDraining:
			err = c.stepDraining()
		case connOver:
			return moved, nil
		}
		if err != nil {
			return moved, fmt.Errorf("connection with rank %d on rail %d: %w", c.peer.rank, c.rail.num, err)
		}
		moved = moved || did || c.state != before
		if c.state == before {
			return moved, nil
		}
	}
}

// stepWaiting opens the connection's next queue pair (its next incarnation) when its backoff is
// over or the peer has begun that incarnation, and sends its connInfo. It finishes a connection
// that is no longer needed.
func (c *conn) stepWaiting() error {
	if c.unneeded() {
		return c.finish()
	}
	if c.peerIncarnation < c.incarnation {
		if c.awaitsPeerOnly() {
			return nil // the peer decides whether to reconnect
		}
		if !c.due(c.retryAt) {
			return nil
		}
	}
	c.incarnation = max(c.incarnation, c.peerIncarnation)
	info, err := c.open(c.railOf(c.incarnation))
	if err != nil {
		return err
	}
	if c.in != nil {
		info.Next = c.in.next
	}
	c.state = connAwaitingInfo
	return c.sendControl(controlMessage{Kind: controlInfo, ConnInfo: info})
}

// unneeded reports whether both ends have completed, or the peer has ended or given up.
func (c *conn) unneeded() bool { return c.doneReported && c.peerDone || c.peerOver || c.peer.gone }

// awaitsPeerOnly reports whether this end has completed and reported that to the peer, so that only
// the peer may need another incarnation (a new queue pair). It is false for two kinds of senders:
// one whose peer reads the messages must announce them again in each incarnation, and one whose
// completions do not mean delivery may have to send messages again.
func (c *conn) awaitsPeerOnly() bool {
	return c.doneReported && (c.out == nil || c.cfg.Op != OpRead && !c.traits.CompletesEarly)
}

// stepConnecting connects the queue pair when the peer has sent its connInfo, and enters connUp
// when the peer is ready. It starts to drain a queue pair that has failed or that is not needed,
// because both ends have completed, the peer has ended, or the peer has begun a later incarnation
// (an attempt to connect): the queue pair enters the error state, and its requests are flushed.
func (c *conn) stepConnecting() error {
	if c.unneeded() || c.peerIncarnation > c.incarnation || c.broken {
		return c.startDraining()
	}
	if c.state == connAwaitingInfo {
		if c.peerIncarnation < c.incarnation {
			return nil
		}
		ok, err := c.connect()
		if c.cfg.CM && isFabricError(err) { // as if a work request had failed
			c.fail(verbs.WCRespTimeoutErr)
			return nil
		}
		if err != nil || !ok {
			return err
		}
		c.resume()
		c.state = connAwaitingReady
		return c.sendControl(controlMessage{Kind: controlReady})
	}
	if c.peerReady == c.incarnation {
		c.state = connUp
		c.wasUp = true
		c.n.noteConnected()
	}
	return nil
}

// stepUp exchanges messages, and reports whether there was progress. When nothing is left to do, or
// the queue pair must be replaced, it starts to drain it: the queue pair enters the error state.
func (c *conn) stepUp() (bool, error) {
	// Responses to outstanding requests may still arrive although the peer has ended: its control
	// message can overtake its NAK. Moving the queue pair to the error state would flush them
	// without their status.
	if c.peerOver && !c.broken && c.sq.Outstanding() > 0 && !c.due(c.peerOverAt+c.grace()) {
		return false, nil
	}
	if c.peerOver || c.peerIncarnation > c.incarnation || c.broken {
		return true, c.startDraining()
	}
	moved, err := c.pump()
	if err != nil || c.broken {
		return moved, err
	}
	if err := c.reportEnd(); err != nil {
		return true, err
	}
	switch {
	case c.doneReported && c.peerDone:
		c.noteCarriedData()
		return true, c.startDraining()
	case c.peer.gone && c.sq.Outstanding() == 0:
		// Nothing is outstanding that could fail, and nothing more will arrive.
		return true, c.startDraining()
	}
	return moved, nil
}

// reportEnd sends a control message when the requests of this end have completed, and another when
// it has also received everything.
func (c *conn) reportEnd() error {
	if c.out != nil && !c.sentReported && c.requestsDone() {
		c.sentReported = true
		f := new(final)
		if c.add != nil {
			f.Adds, f.AddsProven = c.add.posted, c.add.completed
		}
		if err := c.sendControl(controlMessage{Kind: controlSent, Final: f}); err != nil {
			return err
		}
	}
	if !c.doneReported && c.requestsDone() && (c.in == nil || c.in.checkComplete(&c.remoteEnd)) {
		c.doneReported = true
		return c.sendControl(controlMessage{Kind: controlDone})
	}
	return nil
}

// fail handles a failed completion of the current queue pair. The first one breaks the connection;
// later ones are flushes, and ignored. fail records the failure unless this end has completed,
// since most likely the peer has too, and has closed its queue pair. While the queue pair drains,
// only flushes are ignored: the completion with the cause may follow the peer's control message.
func (c *conn) fail(status verbs.WCStatus) {
	if c.broken || c.state == connOver || c.state == connDraining && status == verbs.WCWRFlushErr {
		return
	}
	c.broken = true
	if !c.doneReported {
		c.log.recordFailure(c.now, c.peer.rank, c.rail.num, status)
	}
	c.schedule()
}

// noteCarriedData notes that the current queue pair has delivered or completed something. The first
// time, if that queue pair replaces another, it counts a reconnect.
func (c *conn) noteCarriedData() {
	if c.carriedData {
		return
	}
	c.carriedData, c.failedIncarnations = true, 0
	if c.incarnation == 0 {
		return
	}
	c.log.reconnects++
	if c.cfg.Failover {
		c.log.mark("failover to rail %d", c.rail.num)
	} else {
		c.log.mark("reconnected %s", hostOf(c.peer.rank))
	}
}

// startDraining moves the queue pair to the error state and posts a marker. When the marker
// completes, all requests before it have.
func (c *conn) startDraining() error {
	c.state = connDraining
	c.drainSince = c.now
	if c.endpoint != nil {
		return nil // others use the queue pair; the requests complete by themselves
	}
	if err := c.ToError(); err != nil {
		return err
	}
	return c.sq.Drain()
}

// stepDraining waits until all requests and receives have completed, closes the queue pair, and
// then finishes or waits to connect again. A completion that is missing after grace is a violation.
func (c *conn) stepDraining() error {
	if c.endpoint != nil && c.sq.Outstanding() > 0 {
		return nil
	}
	if c.sq.Draining() || !c.recv.Shared && c.recv.Outstanding() > 0 {
		if !c.due(c.drainSince + c.grace()) {
			return nil
		}
		c.violation(traffic.Completion, "a queue pair in the error state left %d receives and %d requests without a completion", c.recv.Outstanding(), c.sq.Outstanding())
	}
	if err := c.closeQP(); err != nil {
		return err
	}
	if !c.carriedData {
		c.failedIncarnations++
	}
	if c.unneeded() || c.peerIncarnation <= c.incarnation && !c.awaitsPeerOnly() && !c.mayReconnect() {
		return c.finish()
	}
	backoff := time.Duration(0)
	if c.doneReported {
		backoff = 2 * c.tick() // the peer's final control message may be under way
	}
	if c.failedIncarnations > 0 {
		backoff = min(firstBackoff<<min(c.failedIncarnations-1, maxBackoffShift), lastBackoff)
	}
	c.retryAt = c.now + backoff
	c.incarnation++
	c.broken, c.carriedData = false, false
	c.state = connWaiting
	return nil
}

// mayReconnect reports whether to reconnect, as configured; with Failover alone to each rail once.
// After too many attempts without data it returns false.
func (c *conn) mayReconnect() bool {
	switch {
	case c.failedIncarnations > maxFailedIncarnations:
		c.log.mark("gave up on %s", hostOf(c.peer.rank))
		return false
	case c.cfg.Reconnect:
		return true
	}
	return c.cfg.Failover && c.incarnation+1 < len(c.n.rails)
}
