package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// emptyWrites is the timer of an initiator that sends empty RDMA Writes until the peer's first FPDU
// arrives. soft-iWARP of Linux does not look for FPDUs that arrive before it has sent its
// Reply, until more data arrives: both sides would wait for each other.
//
// An empty Write needs no receive, read queue entry or key at the peer. At most maxEmptyWrites are
// sent, with exponential backoff, from the first FPDU sent until one is received, the stream
// fails or our direction closes.
type emptyWrites struct {
	at   mono.Time // mono.Never if the timer is stopped
	wait time.Duration
	left uint8
}

// maxEmptyWrites is the number of empty Writes on a connection. With an interval of 50 ms the last
// is sent after 1.5 s.
const maxEmptyWrites = 5

// startEmptyWrites starts the timer of sendEmptyWrite after the first FPDU was sent.
func (c *Conn) startEmptyWrites(now mono.Time) {
	if c.emptyWrites.left == 0 || c.emptyWrites.at != mono.Never {
		return
	}
	c.emptyWrites.at = now.Add(c.emptyWrites.wait)
	c.rearm()
}

// stopEmptyWrites stops the timer of sendEmptyWrite for good.
func (c *Conn) stopEmptyWrites() {
	if c.emptyWrites.left > 0 {
		c.emptyWrites = emptyWrites{at: mono.Never}
		c.rearm()
	}
}

// sendEmptyWrite sends an empty Write, which makes a peer look for FPDUs that arrived before its Reply,
// and restarts the timer with twice the interval unless it was the last. If the stream has ended or is
// closing, it stops the timer.
func (c *Conn) sendEmptyWrite(now mono.Time) {
	if c.qp == nil || c.closeWhenSent || c.inputClosed || !c.qp.stream.Live() {
		c.stopEmptyWrites()
		return
	}
	if c.qp.stream.SendEmptyWrite() {
		c.nic.Count.EmptyWrites++
		c.queueOutput()
	}
	n := &c.emptyWrites
	n.left--
	n.wait *= 2
	n.at = mono.Never
	if n.left > 0 {
		n.at = now.Add(n.wait)
	}
}
