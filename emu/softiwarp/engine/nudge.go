package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// nudge is the timer of an initiator that sends empty RDMA Writes until the peer's first FPDU
// arrives. soft-iWARP of Linux does not look for FPDUs that arrive before it has sent its
// Reply, until more data arrives: both sides would wait for each other.
//
// An empty Write needs no receive, read queue entry or key at the peer. At most maxNudges are
// sent, with exponential backoff, from the first FPDU sent until one is received, the stream
// fails or our direction closes.
type nudge struct {
	at   mono.Time // mono.Never if the timer is stopped
	wait time.Duration
	left uint8
}

// maxNudges is the number of empty Writes on a connection. With an interval of 50 ms the last
// is sent after 1.5 s.
const maxNudges = 5

// startNudging starts the timer after the first FPDU was sent.
func (c *Conn) startNudging(now mono.Time) {
	if c.nudge.left == 0 || c.nudge.at != mono.Never {
		return
	}
	c.nudge.at = now.Add(c.nudge.wait)
	c.rearm()
}

// stopNudging stops the timer for good.
func (c *Conn) stopNudging() {
	if c.nudge.left > 0 {
		c.nudge = nudge{at: mono.Never}
		c.rearm()
	}
}

// nudgePeer sends an empty Write and restarts the timer with twice the interval.
func (c *Conn) nudgePeer(now mono.Time) {
	if c.qp == nil || c.closeWhenSent || c.inputClosed || !c.qp.stream.Live() {
		c.stopNudging()
		return
	}
	if c.qp.stream.Nudge() {
		c.nic.Count.Nudges++
		c.queueOutput()
	}
	n := &c.nudge
	n.left--
	n.wait *= 2
	n.at = mono.Never
	if n.left > 0 {
		n.at = now.Add(n.wait)
	}
}
