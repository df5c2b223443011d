package roce

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// recoveryCases are the cases of error recovery and congestion control. They use the probes of
// Measure, and judge the values that the specification limits: of timers, NAKs of a gap, and
// reactions to NAKs.
var recoveryCases = overRC.Cases(slices.Concat(recoveryLossCases, recoveryECNCases))

// judging makes the body of a case that calls run to measure, notes the measurements in the record,
// and calls judge, which fails the case if they violate a rule.
func judging(run func(*Port) []Measurement, judge func(*Port, []Measurement)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		all := run(p)
		for _, m := range all {
			p.Note("%s: %.4g %s (%.4g to %.4g, %d samples)", m.Name, m.Value, m.Unit, m.Min(), m.Max(), len(m.Samples))
		}
		judge(p, all)
	})
}

// checkAtMost fails the case unless all samples are at most this large.
func checkAtMost(p *Port, m *Measurement, most float64, want string) {
	p.Check(m.Max() <= most, fmt.Sprintf("%s: %s at most %.4g %s", want, m.Name, most, m.Unit), "%.4g", m.Max())
}

// checkAtLeast fails the case unless all samples are at least this large.
func checkAtLeast(p *Port, m *Measurement, least float64, want string) {
	p.Check(m.Min() >= least, fmt.Sprintf("%s: %s at least %.4g %s", want, m.Name, least, m.Unit), "%.4g", m.Min())
}

// us returns a time in microseconds.
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// checkReaction fails the case if a reaction takes more than most: the longest sample in virtual
// time, the median in real time, where a busy host delays some samples.
func checkReaction(p *Port, m *Measurement, most time.Duration, want string) {
	took := byClock(p, m.Max(), m.Value)
	p.Check(took <= us(most), fmt.Sprintf("%s: %s at most %v", want, m.Name, most), "%.4g us", took)
}

// checkTimer fails the case if a timer expires early, or takes more than four times its nominal
// value. In real time, where this host delays samples, the upper limit applies to the shortest
// sample of each half: that still detects a timer that grows.
func checkTimer(p *Port, m *Measurement) {
	if p.Virtual {
		checkAtLeast(p, m, 1, "no retransmission before the timeout")
	} else {
		// A delayed packet makes one interval longer and the next shorter. Therefore check the
		// mean of all intervals up to each, with a tolerance of 3 %.
		sum := 0.0
		for i, took := range m.Samples {
			sum += took
			n := float64(i + 1)
			p.Check(sum >= 0.97*n, fmt.Sprintf("no retransmission before the timeout: %s at least 0.97 %s", m.Name, m.Unit), "%.4g, mean of the first %d", sum/n, i+1)
		}
	}
	late := m.Max()
	if half := len(m.Samples) / 2; !p.Virtual {
		late = max(slices.Min(m.Samples[:half]), slices.Min(m.Samples[half:]))
	}
	p.Check(late <= 4, fmt.Sprintf("a retransmission within four timeouts: %s", m.Name), "%.4g timeouts", late)
}

// promptLimit is the limit for reactions that must not wait for a timer: a tenth of the timeout.
func promptLimit(p *Port) time.Duration { return ib.AckTimeout(reactionTimeoutCode(p)) / 10 }

var recoveryLossCases = []conformance.Case{{
	ID: "recovery/nak/one-for-each-gap", Cite: ibta("error class B", "rc/psn/6", "rc/psn/7"),
	Title:   "The responder sends one NAK for each gap, however many packets follow it",
	Sends:   "repeatedly, four packets after a gap, then the missing packet",
	Expects: "one sequence NAK for each gap, with the missing PSN",
	Defects: []string{"NAKStorm", "NAKOnlyOnce"}, Run: judging(nakGeneration, func(p *Port, all []Measurement) {
		checkAtMost(p, byName(all, "nak/for-a-gap"), 1, "one NAK for a gap")
	}),
}, {
	ID: "recovery/nak/follows-the-gap", Cite: ibta("error class B", "rc/psn/5"),
	Title:   "The responder sends a NAK when it sees a gap, not after a timer",
	Sends:   "packets after gaps",
	Expects: "a sequence NAK for each within 6.7 ms, or 54 ms in real time, typically",
	Defects: []string{"NAKLate"}, Run: judging(nakGeneration, func(p *Port, all []Measurement) {
		checkReaction(p, byName(all, "nak/generation"), promptLimit(p), "a NAK at once")
	}),
}, {
	ID: "recovery/nak/starts-the-repetition", Cite: ibta("9.7.5", "rc/tmo/8"),
	Title:   "The requester retransmits from the PSN of a NAK at once, at any place in the window, without waiting for a timer",
	Sends:   "to windows of eight packets, a sequence NAK for the first, one in the middle, or the last; the timeout is 67 ms, or 0.5 s in real time",
	Expects: "the retransmitted packet within a tenth of the timeout, typically",
	Defects: []string{"NAKWaitsForTimer"}, Run: judging(nakReaction, func(p *Port, all []Measurement) {
		for i := range all {
			checkReaction(p, &all[i], promptLimit(p), "a reaction that does not wait for a timer")
		}
	}),
}, {
	ID: "recovery/nak/second-loss-of-a-window", Cite: ibta("", "rc/tmo/9"), Level: conformance.Should,
	Title:   "A second NAK, for a later loss in the same window, makes the requester retransmit from there",
	Sends:   "to a window of eight packets, sequence NAKs for the third and, after its retransmission, for the sixth",
	Expects: "each retransmission within a tenth of the timeout",
	Defects: []string{"IgnoreSecondNAK"}, Run: OnPort(func(p *Port) {
		c := p.Connect(Setup{Modify: withTimeoutAndRetries(reactionTimeoutCode(p), 7)})
		c.PostSend(c.QP, c.WriteWR(1, window*MTU))
		c.AwaitPackets(window)
		for _, lost := range []int{2, 5} {
			sent := c.Send(c.peerNak(lost, ib.NakSequence, 0))
			took := awaitRetransmission(c, lost).At - sent
			c.Check(took <= promptLimit(p), fmt.Sprintf("retransmission of packet %d of the window within %v of its NAK", lost, promptLimit(p)), "after %v", took)
			c.Drain(sentSoFar)
		}
		ackWindow(c, window, 1)
	}),
}, {
	ID: "recovery/loss/seen-gaps-wait-for-no-timer", Cite: ibta("9.7.5", "rc/tmo/7", "rc/tmo/8"),
	Title:   "The requester retransmits a lost packet that others follow without waiting for the timer, with the same bytes",
	Sends:   "a responder's NAKs for windows of eight packets of which the first, or one in the middle, was lost",
	Expects: "a retransmission of the lost packet before the timeout",
	Defects: []string{"NAKWaitsForTimer", "RetryRestartsMessage"}, Run: judging(lossRecovery, func(p *Port, all []Measurement) {
		for _, place := range []string{"first", "middle"} {
			checkReaction(p, byName(all, "loss/"+place+"/retransmission"), ib.AckTimeout(lossTimeoutCode(p))/2, "a retransmission caused by the NAK")
		}
	}),
}, {
	ID: "recovery/loss/last-packet-by-the-timer", Cite: ibta("C9-140", "rc/tmo/1", "rc/tmo/2"),
	Title:   "The requester retransmits the lost last packet of a window after the timeout: not before, and soon after",
	Sends:   "no response to windows of eight packets of which the last was lost",
	Expects: "a retransmission of that packet after one to four timeouts",
	Defects: []string{"AdaptiveTimeout", "NoTransportTimer"}, Run: judging(lossRecovery, func(p *Port, all []Measurement) {
		checkTimer(p, byName(all, "loss/last/timeout"))
	}),
}, {
	ID: "recovery/loss/of-what-was-sent-again", Cite: ibta("C9-139", "rc/tmo/1", "rc/tmo/14"),
	Title:   "A packet whose retransmission is lost is retransmitted again after the timeout",
	Sends:   "to a window of eight packets a sequence NAK for the fourth, and no response to the retransmissions",
	Expects: "a second retransmission of the fourth packet, not before a timeout has passed",
	Defects: []string{"NoTransportTimer", "AdaptiveTimeout"}, Run: OnPort(func(p *Port) {
		code := lossTimeoutCode(p)
		c := p.Connect(Setup{Modify: withTimeoutAndRetries(code, 7)})
		c.PostSend(c.QP, c.WriteWR(1, window*MTU))
		c.AwaitPackets(window)
		told := c.Send(c.peerNak(3, ib.NakSequence, 0))
		awaitRetransmission(c, 3)
		took := awaitRetransmission(c, 3).At - told
		c.Check(took >= ib.AckTimeout(code), fmt.Sprintf("a second retransmission not before %v", ib.AckTimeout(code)), "after %v", took)
		ackWindow(c, window, 1)
	}),
}, {
	ID: "recovery/timeout/never-early-hardly-late", Cite: ibta("C9-140", "rc/tmo/2"),
	Title:   "At every retransmission, the timeout is never shorter than the value of its code, and at most four times as long",
	Sends:   "no response to SENDs with timeouts of 0.5, 4.2 and 16.8 ms",
	Expects: "seven retransmissions of each, one to four timeouts apart",
	Defects: []string{"AdaptiveTimeout", "JiffyTimers", "TimeoutBacksOff"}, Run: judging(timeouts, func(p *Port, all []Measurement) {
		for i := range all {
			checkTimer(p, &all[i])
		}
	}),
}, {
	ID: "recovery/read/asks-for-what-is-missing", Cite: ibta("9.4.4", "rc/read/10", "rc/read/11"),
	Title:   "After the loss of a READ response, the requester repeats the READ from there or before, and ends with the right bytes",
	Sends:   "all responses to READs of eight but the first, one in the middle, or the last; then the requested responses",
	Expects: "a READ whose PSN, address and length match the missing responses, within four timeouts, and success with the right bytes",
	Defects: []string{"ReadRetryFromStart", "LastCompletesRead"}, Run: judging(readRecovery, func(p *Port, all []Measurement) {
		for _, place := range lossPositions {
			checkReaction(p, byName(all, "read/"+place.name+"/reaction"), 4*ib.AckTimeout(lossTimeoutCode(p)), "a READ for the missing responses")
		}
	}),
}, {
	ID: "recovery/read/implied-nak", Cite: ibta("", "rc/ack/5"),
	Title:   "An ACK of a request after an unanswered READ makes the requester retransmit the READ",
	Sends:   "an ACK for a SEND after a READ, and no response to the READ",
	Expects: "a retransmitted READ within four timeouts, and success for both after the response",
	Defects: []string{"AckSkipsRead"}, Run: judging(impliedNAK, func(p *Port, all []Measurement) {
		checkReaction(p, byName(all, "read/implied-nak"), 4*ib.AckTimeout(lossTimeoutCode(p)), "a retransmitted READ")
	}),
}, {
	ID: "recovery/rnr/waits-as-long-as-told", Cite: ibta("Table 45", "rc/rnr/5"),
	Title:   "After an RNR NAK a requester waits at least for the RNR timer, each time",
	Sends:   "RNR NAKs of 10 us, 0.64 ms, 10.24 ms and 61.44 ms, four of each",
	Expects: "retransmissions of the SEND, never before that time",
	Defects: []string{"RNRNoWait", "RNRTimerTypo"}, Run: judging(rnrWaits, func(p *Port, all []Measurement) {
		for i := range all {
			checkAtLeast(p, &all[i], 1, "no retransmission before the RNR timer expires")
		}
	}),
}}

// lossTimeoutCode is the timeout code of connections that lose a packet: 4.2 ms in virtual
// time, and at least 268 ms in real time, since a busy host delays packets by tens of ms.
func lossTimeoutCode(p *Port) uint8 { return byClock(p, timeout4ms, p.LongTimeout(16)) }

// timeoutSamples is the number of samples of measurements that take a timeout.
const timeoutSamples = 4

// lossRecovery measures the time from a lost packet of a window to its retransmission, and
// the number of retransmitted packets. The peer sends a NAK as soon as it sees the gap.
// The loss of the last packet leaves no gap and is recovered by the timer.
func lossRecovery(p *Port) (all []Measurement) {
	var last lossTimes
	for _, place := range lossPositions {
		last = lossAt(p, place.at)
		all = append(all,
			newTiming("loss/"+place.name+"/retransmission",
				fmt.Sprintf("from the %s packet of eight, which is lost, to its retransmission", place.ordinal), last.sinceLoss...),
			newMeasurement("loss/"+place.name+"/sent-again",
				fmt.Sprintf("packets retransmitted after the loss of the %s of eight", place.ordinal), Packets, last.retransmitted...))
	}
	return append(all, newMeasurement("loss/last/timeout", "the time to the retransmission of the last packet, in timeouts",
		Nominal, multiples(last.sincePost, ib.AckTimeout(lossTimeoutCode(p)))...))
}

// lossByPosition measures the loss of each packet of the window. No case judges it;
// comparing the positions shows where a device is slow.
func lossByPosition(p *Port) []Measurement {
	all := []Measurement{newTiming("loss/timer", "the local ACK timeout in the following measurements", ib.AckTimeout(lossTimeoutCode(p)))}
	for at := range window {
		m := newTiming(fmt.Sprintf("loss/at-%d/retransmission", at+1),
			"from a packet of eight, which is lost, to its retransmission", lossAt(p, at).sinceLoss...)
		m.Position = at + 1
		all = append(all, m)
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

// lossAt has the device send windows of packets, and treats number at, from 0, of each as lost: the
// peer sends a NAK for it when the next packet arrives. It measures the retransmissions.
func lossAt(p *Port, at int) (t lossTimes) {
	c := p.Connect(Setup{Modify: withTimeoutAndRetries(lossTimeoutCode(p), 7)})
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
				nakSent = c.Send(c.peerNak(i*window+at, ib.NakSequence, uint32(i)))
			}
		}
		a := awaitRetransmission(c, i*window+at)
		c.Check(bytes.Equal(a.Payload, c.LocalMem.Buf[at*MTU:][:MTU]), fmt.Sprintf("the payload of packet %d of the window", at), "another payload in %v", a.Packet)
		t.sinceLoss, t.sincePost = append(t.sinceLoss, a.At-lost), append(t.sincePost, a.At-posted)
		c.Note("lost at %v, NAK sent at %v, retransmitted at %v", lost, nakSent, a.At)
		t.retransmitted = append(t.retransmitted, float64(1+ackWindow(c, (i+1)*window, i+1)))
	}
	return t
}

// multiples returns times as multiples of a nominal value.
func multiples(times []time.Duration, nominal time.Duration) []float64 {
	all := make([]float64, len(times))
	for i, t := range times {
		all[i] = float64(t) / float64(nominal)
	}
	return all
}

// timerCode is the code of an ACK timeout or RNR timer, and its duration for descriptions.
type timerCode struct {
	code     uint8
	duration string
}

// timeouts measures the times between retransmissions of an unacknowledged request, as
// multiples of the timeout. The first sample begins when the request is posted.
func timeouts(p *Port) (all []Measurement) {
	for _, timer := range []timerCode{{7, "0.5 ms"}, {10, "4.2 ms"}, {12, "16.8 ms"}} {
		c := p.Connect(Setup{Modify: withTimeoutAndRetries(timer.code, 7)})
		last := c.Now() // before posting: reception is later than the send
		c.PostSend(c.QP, c.SendWR(1, 8))
		c.AwaitPackets(1)
		between := make([]float64, 0, c.Attr.RetryCnt)
		for range c.Attr.RetryCnt {
			a := c.AwaitPackets(1)[0]
			between = append(between, float64(a.At-last)/float64(ib.AckTimeout(timer.code)))
			last = a.At
		}
		c.Send(c.peerAck(0, 1))
		// In real time the ACK may arrive after the last of these short timeouts.
		wc := c.NextCompletion()
		c.Check(wc.Status == verbs.WCSuccess || wc.Status == verbs.WCRetryExcErr && !c.Virtual, "success after the ACK", "%s", rig.Describe(&wc))
		all = append(all, newMeasurement(fmt.Sprintf("timeout/code-%d", timer.code),
			"between retransmissions, with a timeout of "+timer.duration, Nominal, between...))
	}
	return all
}

// rnrWaits measures the time from an RNR NAK to the retransmission, as multiples of the RNR timer.
func rnrWaits(p *Port) (all []Measurement) {
	for _, timer := range []timerCode{{1, "10 us"}, {12, "0.64 ms"}, {20, "10.24 ms"}, {25, "61.44 ms"}} {
		c := p.Connect(Setup{})
		c.PostSend(c.QP, c.SendWR(1, 8))
		c.AwaitPackets(1)
		waits := make([]float64, 0, timeoutSamples)
		for range timeoutSamples {
			nakSent := c.Send(ib.RNR(c.DevicePSN(0), timer.code, 0))
			waits = append(waits, float64(c.AwaitPackets(1)[0].At-nakSent)/float64(ib.RNRTimer(timer.code)))
		}
		c.completeWith(c.peerAck(0, 1), 1)
		all = append(all, newMeasurement(fmt.Sprintf("rnr/wait/code-%d", timer.code),
			"from an RNR NAK to the retransmission, with a timer of "+timer.duration, Nominal, waits...))
	}
	return all
}
