package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// nudge is when an initiator that has heard nothing of its peer says something
// more. soft-iWARP of Linux answers a Request before it looks for FPDUs: those
// that come in between lie there until anything else comes. If the initiator has
// said all it has to say, both sides wait for good.
//
// A nudge is an RDMA Write of no octets, which takes nothing of the peer's: no
// receive, no place in its read queue, no key. There are a few, each after twice
// the time of the one before, from when the first FPDU has left until one has
// come, the stream fails or our direction ends. A peer that is silent because
// it has nothing to say costs no more than that.
type nudge struct {
	at   mono.Time // mono.Never when none is due
	wait time.Duration
	left uint8
}

// maxNudges is how many there are on a connection: with 50 ms the last is sent
// after 1.5 s.
const maxNudges = 5

// startNudging begins to wait for the peer, once the first FPDU has left.
func (c *Conn) startNudging(now mono.Time) {
	if c.nudge.left == 0 || c.nudge.at != mono.Never {
		return
	}
	c.nudge.at = now.Add(c.nudge.wait)
	c.rearm()
}

// stopNudging is when the peer is heard, or will not be any more.
func (c *Conn) stopNudging() {
	if c.nudge.left > 0 {
		c.nudge = nudge{at: mono.Never}
		c.rearm()
	}
}

// nudgePeer is called when a nudge is due.
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
