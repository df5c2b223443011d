package recovery

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

// readRecovery measures, for the loss of one response to a READ, how long it takes
// from the response behind it, or the last one before it where it was the last itself,
// to the READ for what is missing. A requester may take a response out of order for a
// NAK, or wait for its timer.
func readRecovery(p *rcpeer.Port) (all []Measurement) {
	for _, place := range places {
		times, asked := readAt(p, place.at)
		all = append(all, timed("read/"+place.name+"/reaction", times), measured("read/"+place.name+"/asked-again", Packets, asked))
	}
	return all
}

// readByPosition is readRecovery for every response, without a judgement.
func readByPosition(p *rcpeer.Port) (all []Measurement) {
	for at := range window {
		times, _ := readAt(p, at)
		all = append(all, timed(fmt.Sprintf("read/at-%d/reaction", at+1), times).of(at))
	}
	return all
}

// readAt measures the loss of one response to a READ.
func readAt(p *rcpeer.Port, at int) (times []time.Duration, asked []float64) {
	c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(lossTimer(p))})
	for i := range tries {
		base := i * window
		clear(c.Own.Buf[:window*rcpeer.MTU])
		c.Post(c.QP, c.Reading(1, window))
		c.Take(1)
		data := rcpeer.Data(window * rcpeer.MTU)
		var seen time.Duration
		for k, r := range ib.ReadResponses(c.SQ(base), uint32(i+1), data, rcpeer.MTU) {
			switch {
			case k == at:
			case k == at+1, at == window-1:
				seen = c.Put(r)
			default:
				c.Put(r)
			}
		}
		again := nextRead(c)
		times = append(times, again.At-seen)
		from := missing(c, again, base, at)
		asked = append(asked, float64(window-from))
		c.Put(ib.ReadResponses(c.SQ(base+from), uint32(i+1), data[from*rcpeer.MTU:], rcpeer.MTU)...)
		c.Completes(1, verbs.WCSuccess)
		c.Holds(c.Own, 0, data)
		c.Drain(0)
	}
	return times, asked
}

// nextRead waits for a READ of the device's.
func nextRead(c *rcpeer.Conn) rcpeer.Arrival {
	return c.Await("a READ for what is missing", func(a *rcpeer.Arrival) bool { return a.Opcode() == ib.OpReadRequest })
}

// missing ends the case unless a repeated READ asks for all from the lost response
// on, or from before it, and for its PSN. It returns where it begins.
func missing(c *rcpeer.Conn, again rcpeer.Arrival, base, lost int) int {
	from := again.PSN().Sub(c.SQ(base))
	want := fmt.Sprintf("a READ for what is missing, from response %d of %d on, with its PSN, address and length", lost, window)
	c.Check(from >= 0 && from <= lost, want, "one from %d on: %v", from, again.Packet)
	off, n := int(*again.RETH.VA-rcpeer.Theirs.Addr), int(*again.RETH.Len)
	c.Check(off == from*rcpeer.MTU && n == (window-from)*rcpeer.MTU, want, "%d bytes at offset %d with the PSN of response %d", n, off, from)
	return from
}

// impliedNAK measures how long it takes from an ACK for what is behind a READ, which
// shows that the answer to it was lost, to the READ again.
func impliedNAK(p *rcpeer.Port) []Measurement {
	c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(lossTimer(p))})
	times := make([]time.Duration, 0, tries)
	for i := range tries {
		c.Post(c.QP, c.Reading(1, 1), c.Sending(2, 8))
		c.Take(2)
		sent := c.Put(ib.Ack(c.SQ(2*i+1), uint32(2*i+2)))
		times = append(times, nextRead(c).At-sent)
		c.Put(ib.ReadResponseOnly(c.SQ(2*i), uint32(2*i+1), rcpeer.Data(rcpeer.MTU)), ib.Ack(c.SQ(2*i+1), uint32(2*i+2)))
		c.Completes(1, verbs.WCSuccess)
		c.Completes(2, verbs.WCSuccess)
		c.Drain(0)
	}
	return []Measurement{timed("read/implied-nak", times)}
}
