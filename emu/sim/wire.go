package sim

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// wire is one direction of one cable with the queue in front of it. It needs no
// event of its own: when a packet leaves the queue is known when it enters.
type wire struct {
	pacer    impair.Pacer
	latency  time.Duration
	overhead int // bytes of framing a packet
	leaving  ring[departure]
	queued   int // bytes in leaving
}

type departure struct {
	at    mono.Time // when the last bit has left
	bytes int
}

// send puts n bytes in the queue and returns when they arrive at the far end.
func (x *wire) send(now mono.Time, n int) mono.Time {
	left := x.pacer.Next(now, n+x.overhead)
	if left > now {
		x.leaving.push(departure{at: left, bytes: n})
		x.queued += n
	}
	return left.Add(x.latency)
}

// backlog returns how many bytes have not left, the packet being sent included.
func (x *wire) backlog(now mono.Time) int {
	for x.leaving.len() > 0 && x.leaving.front().at <= now {
		x.queued -= x.leaving.pop().bytes
	}
	return x.queued
}

// nextDeparture returns when the backlog next shrinks. There must be one.
func (x *wire) nextDeparture() mono.Time { return x.leaving.front().at }

// flush forgets the queue, as a port does that loses its link.
func (x *wire) flush() {
	x.pacer.Reset()
	x.leaving, x.queued = ring[departure]{}, 0
}
