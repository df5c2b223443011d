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

// startEmptyWrites is called when FPDUs were sent. Unless the timer of sendEmptyWrite runs or all
// empty Writes were sent, it starts this timer: an empty Write makes Linux siw process FPDUs that
// arrived early.
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

// sendEmptyWrite sends a Write of no octets: Linux siw processes FPDUs that arrive before it has
// sent its MPA Reply only when more data arrives. It restarts the timer with twice the interval
// unless this was the last Write. If the stream has ended or is closing, it only stops the timer.
func (c *Conn) sendEmptyWrite(now mono.Time) {
	if c.qp == nil || c.closeWhenSent || c.inputClosed || !c.qp.stream.Live() {
		c.stopEmptyWrites()
		return
	}
	if c.qp.stream.SendEmptyWrite() {
		c.nic.Count.EmptyWrites++
		c.queueOutput()
	}
	timer := &c.emptyWrites
	timer.left--
	timer.wait *= 2
	timer.at = mono.Never
	if timer.left > 0 {
		timer.at = now.Add(timer.wait)
	}
}
