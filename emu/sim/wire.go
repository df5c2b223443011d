package sim

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// wire is one direction of a cable and its queue. It needs no events: the
// departure time of a packet is known when it is queued.
type wire struct {
	pacer       impair.Pacer
	latency     time.Duration
	overhead    int // bytes of framing per packet
	departures  ring[departure]
	queuedBytes int // bytes in departures
}

type departure struct {
	at    mono.Time // when the last bit leaves
	bytes int
}

// send queues n bytes and returns when they arrive at the far end.
func (x *wire) send(now mono.Time, n int) mono.Time {
	left := x.pacer.Next(now, n+x.overhead)
	if left > now {
		x.departures.push(departure{at: left, bytes: n})
		x.queuedBytes += n
	}
	return left.Add(x.latency)
}

// backlog returns the bytes in the queue, including the packet being sent.
func (x *wire) backlog(now mono.Time) int {
	for x.departures.len() > 0 && x.departures.front().at <= now {
		x.queuedBytes -= x.departures.pop().bytes
	}
	return x.queuedBytes
}

// nextDeparture returns when the next packet leaves. The queue must not be
// empty.
func (x *wire) nextDeparture() mono.Time { return x.departures.front().at }

// flush empties the queue when the link goes down.
func (x *wire) flush() {
	x.pacer.Reset()
	x.departures, x.queuedBytes = ring[departure]{}, 0
}
