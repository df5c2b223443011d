package mpa

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

const (
	// copyLimit is the longest payload that is copied rather than queued as another buffer.
	copyLimit = 256
	// maxVectors is the limit of writev on Linux.
	maxVectors = 1024
)

// Room reports whether another ULPDU may be queued: MaySend is true, and the queue is not full.
func (c *Conn) Room() bool {
	return c.MaySend() && c.out.fpdus < c.cfg.QueueFPDUs && c.out.octets() < c.cfg.QueueOctets
}

// Send queues the FPDU of a ULPDU: header, then payload. header is copied; payload is borrowed and
// must not change until Sent has counted this ULPDU. A ULPDU longer than MULPDU takes several TCP
// segments. Send panics if MaySend is false, and for more than wire.MaxMULPDU octets.
func (c *Conn) Send(header []byte, payload [][]byte) {
	if !c.MaySend() {
		panic("mpa: Send before MaySend")
	}
	payloadLen := 0
	for _, p := range payload {
		payloadLen += len(p)
	}
	if n := len(header) + payloadLen; n > wire.MaxMULPDU {
		panic(fmt.Sprintf("mpa: ULPDU of %d octets exceeds %d", n, wire.MaxMULPDU))
	}
	if c.state == terminating {
		c.state = finished // the Terminate is the last FPDU
	}
	c.count.FPDUsSent++
	if c.params.Out.Markers {
		c.frameMarked(header, payload, payloadLen)
	} else {
		c.framePlain(header, payload, payloadLen)
	}
	c.out.end(isFPDU)
}

// Output appends to bufs the next buffers to write, at most maxVectors; if each frame is to be
// written by itself (align), only those of the first frame. They remain valid, and are returned
// again, until Sent has counted them.
func (c *Conn) Output(bufs [][]byte) [][]byte {
	o := &c.out
	left := o.octets()
	if o.align && left > 0 {
		left = int(o.frames.First().end - o.sent)
	}
	for i := 0; i < o.vectors.Len() && left > 0 && i < maxVectors; i++ {
		v := *o.vectors.At(i)
		bufs = append(bufs, v[:len(v):len(v)])
		left -= len(v)
	}
	return bufs
}

// Sent reports that TCP has accepted the first n octets of Output. It returns the number of
// ULPDUs that were completed by them: their payload is no longer used.
func (c *Conn) Sent(n int) (ulpdus int) {
	if n > c.out.octets() {
		if c.state != finished && c.state != stopped {
			panic("mpa: Sent counts more than Output gave")
		}
		n = c.out.octets() // the rest was dropped when the connection failed
	}
	c.count.OctetsSent += uint64(n)
	return c.out.release(n)
}
