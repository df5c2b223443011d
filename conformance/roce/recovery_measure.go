package roce

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// Measurement is a quantity with several samples.
type Measurement struct {
	// Name identifies the quantity, such as "loss/last/retransmission". About describes it.
	Name, About string
	// Value is the median of the samples.
	Value float64
	Unit  string
	// Samples are in the order of measurement.
	Samples []float64
	// Position is the number of the lost packet in its window of eight, from 1; 0 if none was lost.
	Position int
}

// Min is the smallest sample.
func (m *Measurement) Min() float64 { return slices.Min(m.Samples) }

// Max is the largest sample.
func (m *Measurement) Max() float64 { return slices.Max(m.Samples) }

// Units.
const (
	Microseconds = "us"
	Packets      = "packets"
	// Nominal is a time as a multiple of the nominal value of a timer code.
	Nominal = "x nominal"
)

// newMeasurement returns a measurement with at least one sample; its value is their median.
func newMeasurement(name, about, unit string, samples ...float64) Measurement {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	return Measurement{Name: name, About: about, Unit: unit, Samples: samples, Value: (sorted[(n-1)/2] + sorted[n/2]) / 2}
}

// newTiming returns a measurement of times.
func newTiming(name, about string, times ...time.Duration) Measurement {
	return newMeasurement(name, about, Microseconds, multiples(times, time.Microsecond)...)
}

// probe returns one or more measurements. It runs if the device has the capabilities.
type probe struct {
	needs verbs.Caps
	run   func(*Port) []Measurement
}

// probes are in the order of the printed table.
var probes = []probe{
	{0, ackTurnaround},
	{0, nakGeneration},
	{0, nakReaction},
	{0, lossRecovery},
	{0, lossByPosition},
	{0, readRecovery},
	{0, readByPosition},
	{0, impliedNAK},
	{0, timeouts},
	{0, rnrWaits},
	{verbs.CapCongestion, cnpGeneration},
	{verbs.CapCongestion, cnpPacing},
	{verbs.CapCongestion, cnpScope},
	{verbs.CapCongestion, rates},
}

// Measure runs all probes that the device supports, which measure how it recovers from packet loss
// and reacts to congestion, as Lumina (SIGCOMM 2023) does with a programmable switch. After an
// error it returns the measurements made before.
//
// The scripted peer omits packets, ignores received ones or sends marked ones. Times include the
// network path in both directions, or in one direction if the device acts on a timer.
func Measure(b *conformance.Bench) (all []Measurement, err error) {
	err = OnPort(func(p *Port) {
		for _, probe := range probes {
			if p.Caps.Has(probe.needs) {
				all = append(all, probe.run(p)...)
			}
		}
	})(b)
	return all, err
}

// byName returns the measurement with this name, which must exist.
func byName(all []Measurement, name string) *Measurement {
	i := slices.IndexFunc(all, func(m Measurement) bool { return m.Name == name })
	return &all[i]
}

// sampleCount is the number of samples of measurements that take only a round trip.
func sampleCount(p *Port) int { return byClock(p, 20, 50) }

// ackTurnaround measures the time from a request to its ACK.
func ackTurnaround(p *Port) []Measurement {
	c := p.Connect(Setup{})
	times := make([]time.Duration, 0, sampleCount(p))
	for i := range sampleCount(p) {
		sent := c.Send(c.peerWrite(i, 8))
		times = append(times, awaitAck(c, i).At-sent)
	}
	return []Measurement{newTiming("ack/turnaround",
		"from a request to its ACK: the round-trip time, for comparison with the others", times...)}
}

// awaitAck waits for the ACK of the peer's n-th request packet.
func awaitAck(c *Conn, n int) Arrival {
	return c.Await(c.deviceAck(n, ib.AnyMSN).String(), func(a *Arrival) bool {
		return a.IsAck(ib.AckPositive) && a.PSN() == c.PeerPSN(n)
	})
}

// nakGeneration measures the time from the packet after a gap to the NAK, and counts the NAKs.
func nakGeneration(p *Port) []Measurement {
	c := p.Connect(Setup{})
	times, naks := make([]time.Duration, 0, sampleCount(p)), make([]float64, 0, sampleCount(p))
	for i := range sampleCount(p) {
		sent := c.Send(c.peerWrite(i+1, 8))
		nak := c.Await(c.deviceNak(i, ib.NakSequence, ib.AnyMSN).String(), isSequenceNAK)
		c.Check(nak.PSN() == c.PeerPSN(i), fmt.Sprintf("a NAK with the PSN of gap %d, %#x", i+1, uint32(c.PeerPSN(i))), "%v", nak.Packet)
		times = append(times, nak.At-sent)
		for k := range 3 { // three more packets after the gap
			c.Send(c.peerWrite(i+2+k, 8))
		}
		more := slices.DeleteFunc(p.Drain(sentSoFar), func(a Arrival) bool { return !isSequenceNAK(&a) })
		naks = append(naks, float64(1+len(more)))
		c.Send(c.peerWrite(i, 8)) // the missing packet; the device has dropped the later ones
		awaitAck(c, i)
	}
	return []Measurement{
		newTiming("nak/generation", "from the packet after a gap to the NAK", times...),
		newMeasurement("nak/for-a-gap", "NAKs for a gap followed by four packets", Packets, naks...),
	}
}

// isSequenceNAK reports whether a packet is a NAK for a sequence error.
func isSequenceNAK(a *Arrival) bool { return a.IsNak(ib.NakSequence) }

// window is the number of packets of a WRITE that the device sends at once.
const window = 8

// lossPositions are the positions of lost packets in a window.
var lossPositions = []struct {
	name    string
	at      int
	ordinal string // for descriptions
}{{"first", 0, "first"}, {"middle", window / 2, "fifth"}, {"last", window - 1, "last"}}

// reactionTimeoutCode is the code of a timeout that no prompt reaction reaches: at least 67 ms,
// or 0.5 s in real time, where the host may be busy.
func reactionTimeoutCode(p *Port) uint8 { return p.LongTimeout(byClock[uint8](p, timeout67ms, 17)) }

// nakReaction measures the time from a NAK to the retransmission of the packet with the NAK's PSN.
func nakReaction(p *Port) (all []Measurement) {
	for _, place := range lossPositions {
		times := make([]time.Duration, 0, sampleCount(p))
		c := p.Connect(Setup{Modify: withTimeoutAndRetries(reactionTimeoutCode(p), 7)})
		for i := range sampleCount(p) / 2 {
			c.PostSend(c.QP, c.WriteWR(1, window*MTU))
			c.AwaitPackets(window)
			sent := c.Send(c.peerNak(i*window+place.at, ib.NakSequence, uint32(i)))
			times = append(times, awaitRetransmission(c, i*window+place.at).At-sent)
			ackWindow(c, (i+1)*window, i+1)
		}
		all = append(all, newTiming("nak/reaction/"+place.name,
			fmt.Sprintf("from a NAK for the %s packet of eight to its retransmission", place.ordinal), times...))
	}
	return all
}

// awaitRetransmission waits for the retransmission of the device's n-th packet.
func awaitRetransmission(c *Conn, n int) Arrival {
	return c.Await(fmt.Sprintf("retransmission of packet %d of the window", n%window), func(a *Arrival) bool { return a.PSN() == c.DevicePSN(n) })
}

// ackWindow acknowledges the device's first n packets, which are of this number of messages. It
// returns the number of packets that the device has sent before the ACK and the case has not read.
func ackWindow(c *Conn, n, messages int) (more int) {
	more = len(c.Drain(sentSoFar))
	c.completeWith(c.peerAck(n-1, uint32(messages)), 1)
	return more
}

// readRecovery measures the loss of one READ response: the time from the response after it, or
// before it if the last was lost, to the READ for the missing responses. A requester may request
// them when a response arrives out of order, or wait for its timer.
func readRecovery(p *Port) (all []Measurement) {
	for _, place := range lossPositions {
		times, asked := readAt(p, place.at)
		neighbor := "after"
		if place.name == "last" {
			neighbor = "before"
		}
		all = append(all,
			newTiming("read/"+place.name+"/reaction",
				fmt.Sprintf("from the response %s the %s, which is lost, to the new READ request", neighbor, place.ordinal), times...),
			newMeasurement("read/"+place.name+"/asked-again",
				fmt.Sprintf("responses requested again when the %s was lost", place.ordinal), Packets, asked...))
	}
	return all
}

// readByPosition measures the loss of each response. No case judges it.
func readByPosition(p *Port) (all []Measurement) {
	for at := range window {
		times, _ := readAt(p, at)
		m := newTiming(fmt.Sprintf("read/at-%d/reaction", at+1),
			"from the response after one of eight, which is lost, to the new READ request", times...)
		m.Position = at + 1
		all = append(all, m)
	}
	return all
}

// readAt omits response number at of READs. It returns the times from the response next to it to
// the retransmitted READ, and the numbers of responses that this READ requests.
func readAt(p *Port, at int) (times []time.Duration, requested []float64) {
	c := p.Connect(Setup{Modify: withTimeoutAndRetries(lossTimeoutCode(p), 7)})
	for i := range timeoutSamples {
		base := i * window
		clear(c.LocalMem.Buf[SinkOffset:][:window*MTU])
		c.PostSend(c.QP, c.ReadWR(1, window*MTU))
		c.AwaitPackets(1)
		data := Data(window * MTU)
		var neighborSent time.Duration
		for k, r := range ib.ReadResponses(c.DevicePSN(base), uint32(i+1), data, MTU) {
			switch {
			case k == at: // lost
			case k == at+1, at == window-1: // if the last is lost, the one before it is sent last
				neighborSent = c.Send(r)
			default:
				c.Send(r)
			}
		}
		again := nextRead(c)
		times = append(times, again.At-neighborSent)
		from := checkReadRetry(c, again, base, at)
		requested = append(requested, float64(window-from))
		c.Send(ib.ReadResponses(c.DevicePSN(base+from), uint32(i+1), data[from*MTU:], MTU)...)
		c.ExpectCompletion(1, verbs.WCSuccess)
		c.ExpectBytes(c.LocalMem, SinkOffset, data)
		c.Drain(sentSoFar)
	}
	return times, requested
}

// nextRead waits for a READ request from the device.
func nextRead(c *Conn) Arrival {
	return c.Await("a READ for the missing responses", func(a *Arrival) bool { return a.Opcode() == ib.OpReadRequest })
}

// checkReadRetry fails the case unless a retransmitted READ requests all responses from the lost or
// an earlier one on, with the matching PSN. It returns the number of the first requested response.
func checkReadRetry(c *Conn, again Arrival, base, lost int) int {
	from := again.PSN().Sub(c.DevicePSN(base))
	want := fmt.Sprintf("a READ for the missing responses, from number %d of %d on, with its PSN, address and length", lost, window)
	c.Check(from >= 0 && from <= lost, want, "one from %d on: %v", from, again.Packet)
	off, n := int(*again.RETH.VA-PeerMemory.Addr), int(*again.RETH.Len)
	c.Check(off == from*MTU && n == (window-from)*MTU, want, "%d bytes at offset %d with the PSN of response %d", n, off, from)
	return from
}

// impliedNAK measures the time from an ACK of a request after a READ, which implies that
// the READ response was lost, to the retransmitted READ.
func impliedNAK(p *Port) []Measurement {
	c := p.Connect(Setup{Modify: withTimeoutAndRetries(lossTimeoutCode(p), 7)})
	times := make([]time.Duration, 0, timeoutSamples)
	for i := range timeoutSamples {
		c.PostSend(c.QP, c.ReadWR(1, MTU), c.SendWR(2, 8))
		c.AwaitPackets(2)
		sent := c.Send(c.peerAck(2*i+1, uint32(2*i+2)))
		times = append(times, nextRead(c).At-sent)
		c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), Data(MTU)), c.peerAck(2*i+1, uint32(2*i+2)))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.Drain(sentSoFar)
	}
	return []Measurement{newTiming("read/implied-nak", "from an ACK of a request after a READ to the retransmitted READ", times...)}
}
