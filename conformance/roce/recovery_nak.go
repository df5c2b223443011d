package roce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// ackTurnaround measures the time from a request to its ACK.
func ackTurnaround(p *Port) []Measurement {
	c := p.Connect(Setup{})
	times := make([]time.Duration, 0, sampleCount(p))
	for i := range sampleCount(p) {
		sent := c.Send(writePacket(c, i))
		times = append(times, awaitAck(c, i).At-sent)
	}
	return []Measurement{newTiming("ack/turnaround", times)}
}

// awaitAck waits for the ACK of the peer's n-th request packet.
func awaitAck(c *Conn, n int) Arrival {
	return c.Await(ib.Ack(c.PeerPSN(n), ib.AnyMSN).String(), func(a *Arrival) bool {
		return a.IsAck(ib.AckPositive) && a.PSN() == c.PeerPSN(n)
	})
}

// packetsAfterGap is the number of packets after each gap.
const packetsAfterGap = 4

// nakGeneration measures the time from the packet after a gap to the NAK, and the number
// of NAKs for a gap.
func nakGeneration(p *Port) []Measurement {
	c := p.Connect(Setup{})
	times, naks := make([]time.Duration, 0, sampleCount(p)), make([]float64, 0, sampleCount(p))
	for i := range sampleCount(p) {
		sent := c.Send(writePacket(c, i+1))
		nak := c.Await(ib.Nak(c.PeerPSN(i), ib.NakSequence, ib.AnyMSN).String(), isSequenceNAK)
		c.Check(nak.PSN() == c.PeerPSN(i), fmt.Sprintf("a NAK with the PSN of gap %d, %#x", i+1, uint32(c.PeerPSN(i))), "%v", nak.Packet)
		times = append(times, nak.At-sent)
		n := 1
		for k := range packetsAfterGap - 1 {
			c.Send(writePacket(c, i+2+k))
		}
		for _, a := range p.Drain(0) {
			if isSequenceNAK(&a) {
				n++
			}
		}
		naks = append(naks, float64(n))
		c.Send(writePacket(c, i))
		awaitAck(c, i)
	}
	return []Measurement{newTiming("nak/generation", times), newMeasurement("nak/for-a-gap", Packets, naks)}
}

func isSequenceNAK(a *Arrival) bool { return a.IsNak(ib.NakSequence) }

// window is the number of packets of a WRITE that the device sends at once.
const window = 8

// lossPositions are the positions of lost packets in a window.
var lossPositions = []struct {
	name string
	at   int
}{{"first", 0}, {"middle", window / 2}, {"last", window - 1}}

// reactionTimeoutCode is the code of a timeout that no prompt reaction reaches: at least 67 ms,
// or 0.5 s in real time, where the host may be busy.
func reactionTimeoutCode(p *Port) uint8 {
	if p.Virtual {
		return p.LongTimeout(14)
	}
	return p.LongTimeout(17)
}

// nakReaction measures the time from a NAK to the retransmission of its packet.
func nakReaction(p *Port) (all []Measurement) {
	for _, place := range lossPositions {
		times := make([]time.Duration, 0, sampleCount(p))
		c := p.Connect(Setup{Modify: WithTimeout(reactionTimeoutCode(p))})
		for i := range sampleCount(p) / 2 {
			c.PostSend(c.QP, c.WriteWR(1, window*MTU))
			c.AwaitPackets(window)
			sent := c.Send(ib.Nak(c.DevicePSN(i*window+place.at), ib.NakSequence, uint32(i)))
			times = append(times, awaitRetransmission(c, i*window+place.at).At-sent)
			ackWindow(c, (i+1)*window, i+1)
		}
		all = append(all, newTiming("nak/reaction/"+place.name, times))
	}
	return all
}

// awaitRetransmission waits for the retransmission of the device's n-th packet.
func awaitRetransmission(c *Conn, n int) Arrival {
	return c.Await(fmt.Sprintf("retransmission of packet %d of the window", n%window), func(a *Arrival) bool { return a.PSN() == c.DevicePSN(n) })
}

// ackWindow acknowledges the device's first n packets, which are of this many messages. It
// returns the number of packets received before the ACK.
func ackWindow(c *Conn, n, messages int) (more int) {
	more = len(c.Drain(0))
	c.completeWith(ib.Ack(c.DevicePSN(n-1), uint32(messages)), 1)
	return more
}
