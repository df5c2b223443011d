package roce

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// lossTimeoutCode is the timeout code of connections that lose a packet: 4.2 ms in virtual
// time, and at least 268 ms in real time, since a busy host delays packets by tens of ms.
func lossTimeoutCode(p *Port) uint8 {
	if p.Virtual {
		return 10
	}
	return p.LongTimeout(16)
}

// timeoutSamples is the number of samples of measurements that take a timeout.
const timeoutSamples = 4

// lossRecovery measures the time from a lost packet of a window to its retransmission, and
// the number of retransmitted packets. The peer sends a NAK as soon as it sees the gap.
// The loss of the last packet leaves no gap and is recovered by the timer.
func lossRecovery(p *Port) (all []Measurement) {
	var last lossTimes
	for _, place := range lossPositions {
		last = lossAt(p, place.at)
		all = append(all, newTiming("loss/"+place.name+"/retransmission", last.sinceLoss), newMeasurement("loss/"+place.name+"/sent-again", Packets, last.retransmitted))
	}
	return append(all, newMeasurement("loss/last/timeout", Nominal, multiples(last.sincePost, ib.AckTimeout(lossTimeoutCode(p)))))
}

// lossByPosition measures the loss of each packet of the window. No case judges it;
// comparing the positions shows where a device is slow.
func lossByPosition(p *Port) []Measurement {
	all := []Measurement{newTiming("loss/timer", []time.Duration{ib.AckTimeout(lossTimeoutCode(p))})}
	for at := range window {
		all = append(all, newTiming(fmt.Sprintf("loss/at-%d/retransmission", at+1), lossAt(p, at).sinceLoss).atPosition(at))
	}
	return all
}

// lossTimes is the result of [lossAt], with one sample for each window.
type lossTimes struct {
	sinceLoss []time.Duration // from the lost packet to its retransmission
	// sincePost is the time from posting the window to the retransmission. The device's
	// timer cannot start earlier, however late a busy bench sees the packets.
	sincePost     []time.Duration
	retransmitted []float64 // number of retransmitted packets
}

// lossAt measures the loss of packet number at of a window.
func lossAt(p *Port, at int) (t lossTimes) {
	c := p.Connect(Setup{Modify: WithTimeout(lossTimeoutCode(p))})
	for i := range timeoutSamples {
		posted := c.Now()
		c.PostSend(c.QP, c.WriteWR(1, window*MTU))
		var lost, nakSent time.Duration
		for k := range window {
			a := c.AwaitPackets(1)[0]
			switch k {
			case at:
				lost = a.At
			case at + 1:
				nakSent = c.Send(ib.Nak(c.DevicePSN(i*window+at), ib.NakSequence, uint32(i)))
			}
		}
		a := awaitRetransmission(c, i*window+at)
		checkSamePayload(c, a, at)
		t.sinceLoss, t.sincePost = append(t.sinceLoss, a.At-lost), append(t.sincePost, a.At-posted)
		c.Note("lost at %v, told at %v, again at %v", lost, nakSent, a.At)
		t.retransmitted = append(t.retransmitted, float64(1+ackWindow(c, (i+1)*window, i+1)))
	}
	return t
}

// atPosition sets the position of the lost packet.
func (m Measurement) atPosition(at int) Measurement {
	m.Position = at + 1
	return m
}

// checkSamePayload fails the case unless a retransmitted packet has the payload of the k-th
// packet of the window.
func checkSamePayload(c *Conn, a Arrival, k int) {
	c.Check(bytes.Equal(a.Payload, c.LocalMem.Buf[k*MTU:][:MTU]), fmt.Sprintf("the payload of packet %d of the window", k), "another payload in %v", a.Packet)
}

// multiples returns times as multiples of a nominal value.
func multiples(times []time.Duration, nominal time.Duration) []float64 {
	all := make([]float64, len(times))
	for i, t := range times {
		all[i] = float64(t) / float64(nominal)
	}
	return all
}

// timeoutCodes are the measured codes: 0.5, 4.2 and 16.8 ms.
var timeoutCodes = []uint8{7, 10, 12}

// timeouts measures the times between retransmissions of an unacknowledged request, as
// multiples of the timeout. The first sample begins when the request is posted.
func timeouts(p *Port) (all []Measurement) {
	for _, code := range timeoutCodes {
		c := p.Connect(Setup{Modify: WithTimeout(code)})
		last := c.Now() // before posting: reception is later than the send
		c.PostSend(c.QP, c.SendWR(1, 8))
		c.AwaitPackets(1)
		between := make([]float64, 0, c.Attr.RetryCnt)
		for range c.Attr.RetryCnt {
			a := c.AwaitPackets(1)[0]
			between = append(between, float64(a.At-last)/float64(ib.AckTimeout(code)))
			last = a.At
		}
		c.Send(ib.Ack(c.DevicePSN(0), 1))
		// In real time the ACK may arrive after the last of these short timeouts.
		wc := c.NextCompletion()
		c.Check(wc.Status == verbs.WCSuccess || wc.Status == verbs.WCRetryExcErr && !c.Virtual, "success after the ACK", "%s", rig.Describe(&wc))
		all = append(all, newMeasurement(fmt.Sprintf("timeout/code-%d", code), Nominal, between))
	}
	return all
}

// rnrCodes are the measured codes: 10 us, 0.64 ms, 10.24 ms and 61.44 ms.
var rnrCodes = []uint8{1, 12, 20, 25}

// rnrWaits measures the time from an RNR NAK to the retransmission, as multiples of the
// RNR timer.
func rnrWaits(p *Port) (all []Measurement) {
	for _, code := range rnrCodes {
		c := p.Connect(Setup{})
		c.PostSend(c.QP, c.SendWR(1, 8))
		c.AwaitPackets(1)
		waits := make([]float64, 0, timeoutSamples)
		for range timeoutSamples {
			nakSent := c.Send(ib.RNR(c.DevicePSN(0), code, 0))
			waits = append(waits, float64(c.AwaitPackets(1)[0].At-nakSent)/float64(ib.RNRTimer(code)))
		}
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
		all = append(all, newMeasurement(fmt.Sprintf("rnr/wait/code-%d", code), Nominal, waits))
	}
	return all
}
