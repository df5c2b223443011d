package recovery

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

// ackTurnaround measures how long it takes from a request to its ACK.
func ackTurnaround(p *rcpeer.Port) []Measurement {
	c := p.Connect(rcpeer.Setup{})
	times := make([]time.Duration, 0, repeated(p))
	for i := range repeated(p) {
		sent := c.Put(write(c, i))
		times = append(times, acknowledged(c, i).At-sent)
	}
	return []Measurement{timed("ack/turnaround", times)}
}

// write is the peer's n-th packet: a WRITE that is to be acknowledged.
func write(c *rcpeer.Conn, n int) ib.Packet {
	return ib.WriteOnly(c.PSN(n), c.At(0, 8), rcpeer.Data(8)).AckReq()
}

// acknowledged waits for the ACK of the peer's n-th packet.
func acknowledged(c *rcpeer.Conn, n int) rcpeer.Arrival {
	return c.Await(ib.Ack(c.PSN(n), ib.AnyMSN).String(), func(a *rcpeer.Arrival) bool {
		return a.IsAck(ib.AckPositive) && a.PSN() == c.PSN(n)
	})
}

// behindGap is how many packets come behind each gap.
const behindGap = 4

// nakGeneration measures how long it takes from the packet behind a gap to the NAK,
// and how many NAKs there are for a gap.
func nakGeneration(p *rcpeer.Port) []Measurement {
	c := p.Connect(rcpeer.Setup{})
	times, naks := make([]time.Duration, 0, repeated(p)), make([]float64, 0, repeated(p))
	for i := range repeated(p) {
		sent := c.Put(write(c, i+1))
		nak := c.Await(ib.Nak(c.PSN(i), ib.NakSequence, ib.AnyMSN).String(), isSequenceNAK)
		c.Check(nak.PSN() == c.PSN(i), fmt.Sprintf("a NAK with the PSN of gap %d, %#x", i+1, uint32(c.PSN(i))), "%v", nak.Packet)
		times = append(times, nak.At-sent)
		n := 1
		for k := range behindGap - 1 {
			c.Put(write(c, i+2+k))
		}
		for _, a := range p.Drain(0) {
			if isSequenceNAK(&a) {
				n++
			}
		}
		naks = append(naks, float64(n))
		c.Put(write(c, i))
		acknowledged(c, i)
	}
	return []Measurement{timed("nak/generation", times), measured("nak/for-a-gap", Packets, naks)}
}

func isSequenceNAK(a *rcpeer.Arrival) bool { return a.IsNak(ib.NakSequence) }

// A window is what the device sends at once: a WRITE of so many packets.
const window = 8

// places are where in a window something is lost.
var places = []struct {
	name string
	at   int
}{{"first", 0}, {"middle", window / 2}, {"last", window - 1}}

// reactionTimer is a timeout far longer than anything but waiting for it: 67 ms or more,
// and 0.5 s or more in real time, where the computer may be busy.
func reactionTimer(p *rcpeer.Port) uint8 {
	if p.Virtual {
		return p.LongTimer(14)
	}
	return p.LongTimer(17)
}

// nakReaction measures how long it takes from a NAK to the packet that it asks for.
func nakReaction(p *rcpeer.Port) (all []Measurement) {
	for _, place := range places {
		times := make([]time.Duration, 0, repeated(p))
		c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(reactionTimer(p))})
		for i := range repeated(p) / 2 {
			c.Post(c.QP, c.Writing(1, window))
			c.Take(window)
			sent := c.Put(ib.Nak(c.SQ(i*window+place.at), ib.NakSequence, uint32(i)))
			times = append(times, resent(c, i*window+place.at).At-sent)
			finish(c, (i+1)*window, i+1)
		}
		all = append(all, timed("nak/reaction/"+place.name, times))
	}
	return all
}

// resent waits for the device's n-th packet.
func resent(c *rcpeer.Conn, n int) rcpeer.Arrival {
	return c.Await(fmt.Sprintf("packet %d of the window again", n%window), func(a *rcpeer.Arrival) bool { return a.PSN() == c.SQ(n) })
}

// finish acknowledges the device's first n packets, and what they are of. It returns
// how many packets came between.
func finish(c *rcpeer.Conn, n, messages int) (more int) {
	more = len(c.Drain(0))
	c.Put(ib.Ack(c.SQ(n-1), uint32(messages)))
	c.Completes(1, verbs.WCSuccess)
	return more
}
