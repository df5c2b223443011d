package mpa

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

const (
	// copyLimit is the payload up to which a copy is cheaper than one more vector
	// for TCP to follow.
	copyLimit = 256
	// maxVectors is what a writev takes on Linux.
	maxVectors = 1024
)

// Room reports whether another ULPDU may be sent: MaySend, and the queue is not
// full.
func (c *Conn) Room() bool {
	return c.MaySend() && c.out.fpdus < c.cfg.QueueFPDUs && c.out.octets() < c.cfg.QueueOctets
}

// Send queues the FPDU of the ULPDU that header and payload make up. header is
// copied; payload is borrowed until Sent counts this ULPDU, and must not change
// until then. Of what is longer than MULPDU TCP will make several segments. It
// panics without MaySend and beyond wire.MaxMULPDU.
func (c *Conn) Send(header []byte, payload [][]byte) {
	if !c.MaySend() {
		panic("mpa: Send before MaySend")
	}
	load := 0
	for _, p := range payload {
		load += len(p)
	}
	if n := len(header) + load; n > wire.MaxMULPDU {
		panic(fmt.Sprintf("mpa: ULPDU of %d octets exceeds %d", n, wire.MaxMULPDU))
	}
	if c.state == lastWord {
		c.state = over // once it is written
	}
	c.count.FPDUsSent++
	if c.params.Out.Markers {
		c.frameMarked(header, payload, load)
	} else {
		c.framePlain(header, payload, load)
	}
	c.out.end(true)
}

// Output appends what is to be written next to into, and returns that. It is
// borrowed until Sent has counted it, and comes again until then.
func (c *Conn) Output(into [][]byte) [][]byte {
	o := &c.out
	left := o.octets()
	if o.align && left > 0 {
		left = int(o.frames.First().end - o.sent)
	}
	for i := 0; i < o.vectors.Len() && left > 0 && i < maxVectors; i++ {
		v := *o.vectors.At(i)
		into = append(into, v[:len(v):len(v)])
		left -= len(v)
	}
	return into
}

// Sent says that TCP has taken the first n octets of Output. It returns how many
// ULPDUs are now wholly taken that were not before: their payload is free.
func (c *Conn) Sent(n int) (ulpdus int) {
	if n > c.out.octets() {
		if c.state != over && c.state != hung {
			panic("mpa: Sent counts more than Output gave")
		}
		n = c.out.octets() // the rest was dropped when the connection failed
	}
	c.count.OctetsSent += uint64(n)
	return c.out.take(n)
}
