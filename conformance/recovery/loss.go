package recovery

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// lossTimer is the timeout of windows that lose a packet: 4.2 ms, and 268 ms or more in
// real time, where packets of a busy computer are late by tens of milliseconds.
func lossTimer(p *rcpeer.Port) uint8 {
	if p.Virtual {
		return 10
	}
	return p.LongTimer(16)
}

// tries is how often something is measured that takes a timeout.
const tries = 4

// lossRecovery measures, for the loss of one packet of a window, how long it takes
// from the lost packet to the one that replaces it, how many packets of the window are
// sent again, and what that costs in all. The peer tells of the gap as soon as it sees
// one; there is none behind the last packet, which is for the timer.
func lossRecovery(p *rcpeer.Port) (all []Measurement) {
	var last lossTimes
	for _, place := range places {
		last = lossAt(p, place.at)
		all = append(all, timed("loss/"+place.name+"/retransmission", last.sinceLoss), measured("loss/"+place.name+"/sent-again", Packets, last.resent))
	}
	return append(all, measured("loss/last/timeout", Nominal, multiples(last.sincePost, ib.AckTimeout(lossTimer(p)))))
}

// lossByPosition is lossRecovery for every packet of the window, and without a
// judgement: where a device is slow is found by comparing.
func lossByPosition(p *rcpeer.Port) []Measurement {
	all := []Measurement{timed("loss/timer", []time.Duration{ib.AckTimeout(lossTimer(p))})}
	for at := range window {
		all = append(all, timed(fmt.Sprintf("loss/at-%d/retransmission", at+1), lossAt(p, at).sinceLoss).of(at))
	}
	return all
}

// lossTimes is what [lossAt] measures, one sample for each window.
type lossTimes struct {
	sinceLoss []time.Duration // from the lost packet to its retransmission
	// sincePost is from before the window was posted to the retransmission. The device's
	// timer starts no earlier, however late a busy bench sees the packets.
	sincePost []time.Duration
	resent    []float64 // packets that were sent again
}

// lossAt measures the loss of one packet of a window.
func lossAt(p *rcpeer.Port, at int) (t lossTimes) {
	c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(lossTimer(p))})
	for i := range tries {
		posted := c.Now()
		c.Post(c.QP, c.Writing(1, window))
		var lost, early time.Duration
		for k := range window {
			a := c.Take(1)[0]
			switch k {
			case at:
				lost = a.At
			case at + 1:
				early = c.Put(ib.Nak(c.SQ(i*window+at), ib.NakSequence, uint32(i)))
			}
		}
		a := resent(c, i*window+at)
		sameBytes(c, a, at)
		t.sinceLoss, t.sincePost = append(t.sinceLoss, a.At-lost), append(t.sincePost, a.At-posted)
		c.Note("lost at %v, told at %v, again at %v", lost, early, a.At)
		t.resent = append(t.resent, float64(1+finish(c, (i+1)*window, i+1)))
	}
	return t
}

// of says of which packet of a window a measurement is.
func (m Measurement) of(at int) Measurement {
	m.Position = at + 1
	return m
}

// sameBytes ends the case unless a packet that is sent again has the bytes that it had
// at first: the k-th of a window.
func sameBytes(c *rcpeer.Conn, a rcpeer.Arrival, k int) {
	c.Check(bytes.Equal(a.Payload, c.Own.Buf[k*rcpeer.MTU:][:rcpeer.MTU]), fmt.Sprintf("the bytes of packet %d of the window again", k), "others, in %v", a.Packet)
}

// multiples are times as multiples of a nominal one.
func multiples(times []time.Duration, nominal time.Duration) []float64 {
	all := make([]float64, len(times))
	for i, t := range times {
		all[i] = float64(t) / float64(nominal)
	}
	return all
}

// timeoutCodes are those of which the timer is measured: 0.5, 4.2 and 16.8 ms.
var timeoutCodes = []uint8{7, 10, 12}

// timeouts measures the time between repetitions of a request that nobody answers, as
// multiples of what the code of the timeout stands for. The first sample is that from
// posting the request to its first repetition.
func timeouts(p *rcpeer.Port) (all []Measurement) {
	for _, code := range timeoutCodes {
		c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(code)})
		last := c.Now() // before it is sent: the bench can see it later only
		c.Post(c.QP, c.Sending(1, 8))
		c.Take(1)
		between := make([]float64, 0, c.Attr.RetryCnt)
		for range c.Attr.RetryCnt {
			a := c.Take(1)[0]
			between = append(between, float64(a.At-last)/float64(ib.AckTimeout(code)))
			last = a.At
		}
		c.Put(ib.Ack(c.SQ(0), 1))
		// A bench in real time may come too late for the last of so short timeouts.
		wc := c.Completion()
		c.Check(wc.Status == verbs.WCSuccess || wc.Status == verbs.WCRetryExcErr && !c.Virtual, "success behind the ACK", "%s", rig.Describe(&wc))
		all = append(all, measured(fmt.Sprintf("timeout/code-%d", code), Nominal, between))
	}
	return all
}

// rnrCodes are those of which the wait is measured: 10 us, 0.64 ms, 10.24 ms and
// 61.44 ms.
var rnrCodes = []uint8{1, 12, 20, 25}

// rnrWaits measures how long a requester waits after an RNR NAK, as multiples of what
// it was told to.
func rnrWaits(p *rcpeer.Port) (all []Measurement) {
	for _, code := range rnrCodes {
		c := p.Connect(rcpeer.Setup{})
		c.Post(c.QP, c.Sending(1, 8))
		c.Take(1)
		waits := make([]float64, 0, tries)
		for range tries {
			told := c.Put(ib.RNR(c.SQ(0), code, 0))
			waits = append(waits, float64(c.Take(1)[0].At-told)/float64(ib.RNRTimer(code)))
		}
		c.Put(ib.Ack(c.SQ(0), 1))
		c.Completes(1, verbs.WCSuccess)
		all = append(all, measured(fmt.Sprintf("rnr/wait/code-%d", code), Nominal, waits))
	}
	return all
}
