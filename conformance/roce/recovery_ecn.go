package roce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var recoveryECNCases = conformance.Group{Needs: verbs.CapCongestion}.Cases([]conformance.Case{{
	ID: "recovery/cnp/follows-the-mark", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "The receiver of a marked packet sends one CNP at once",
	Sends:   "marked packets at long intervals",
	Expects: "one CNP for each, within 6.7 ms typically",
	Defects: []string{"NoCongestion", "CNPLate"}, Run: judging(cnpGeneration, func(p *Port, all []Measurement) {
		checkReaction(p, byName(all, "cnp/generation"), promptLimit(p), "a CNP at once")
		checkAtMost(p, byName(all, "cnp/for-a-mark"), 1, "one CNP for a mark")
	}),
}, {
	ID: "recovery/cnp/keep-a-distance", Cite: annexA17("CA17-44", "ecn/2"), Level: conformance.May,
	Title:   "For a stream of marked packets the receiver sends CNPs at a minimum interval",
	Sends:   "500 marked packets back to back",
	Expects: "one CNP for two marks at most; in virtual time no two CNPs closer than two marks",
	Defects: []string{"CNPBurst"}, Run: judging(cnpPacing, func(p *Port, all []Measurement) {
		const dense = 10 // us: shorter than any device's CNP interval
		apart, cnps := byName(all, "cnp/marks-apart"), byName(all, "cnp/for-500-marks")
		if apart.Value > dense && cnps.Value > marks/2 {
			rig.BenchCannot("marked packets are %.4g us apart on this bench, and each may get a CNP", apart.Value)
		}
		p.Check(cnps.Value >= 1, "a CNP", "none for %d marks", marks)
		checkAtMost(p, cnps, marks/2, "fewer CNPs than marks")
		if p.Virtual && cnps.Value > 1 { // real queues change the intervals
			checkAtLeast(p, byName(all, "cnp/apart"), 2*apart.Value, "CNPs at a minimum interval")
		}
	}),
}, {
	ID: "recovery/cnp/one-queue-pair-does-not-silence-another", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "The minimum interval of CNPs applies to each queue pair separately",
	Sends:   "at once, a marked packet to each of three queue pairs, of which two have the same peer",
	Expects: "a CNP for each",
	Defects: []string{"CNPPerPort", "CNPPerPeer"}, Run: judging(cnpScope, func(p *Port, all []Measurement) {
		checkAtLeast(p, byName(all, "cnp/two-qps-of-a-peer"), 2, "a CNP for each queue pair")
		checkAtLeast(p, byName(all, "cnp/qp-of-another-peer"), 1, "a CNP for each queue pair")
	}),
}, {
	ID: "recovery/cnp/none-for-losses", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "The responder reports losses by NAKs, and sends no CNP for them",
	Sends:   "ten gaps, one after the other, each followed by the missing packet; no packet is marked",
	Expects: "NAKs and ACKs, and no CNP",
	Defects: []string{"CNPOnNAK"}, Run: OnPort(func(p *Port) {
		c := p.Connect(Setup{})
		for i := range 10 {
			c.Send(c.peerWrite(i+1, 8))
			c.Await("a sequence NAK", isSequenceNAK)
			c.Send(c.peerWrite(i, 8))
			awaitAck(c, i)
		}
		cnps := p.drainCNPs(maxCNPInterval)
		c.Check(len(cnps) == 0, "no CNP without a marked packet", "%v", cnps)
	}),
}, {
	ID: "recovery/rate/falls-and-comes-back", Cite: annexA17("CA17-45/46", "ecn/3", "ecn/4"), Level: conformance.Should,
	Title:   "CNPs reduce the rate of a queue pair, and the rate recovers when they end",
	Sends:   "one CNP, then ten, to a queue pair that sends in bursts of 60 packets; then none",
	Expects: "longer bursts after ten CNPs than before, and short ones again later",
	Defects: []string{"NoCongestion", "RateNeverRecovers"}, Run: judging(rates, func(p *Port, all []Measurement) {
		before, ten := byName(all, "rate/burst/before"), byName(all, "rate/burst/behind-ten")
		if before.Value > us(time.Millisecond) && ten.Value < 2*before.Value {
			rig.BenchCannot("the device takes %.4g us for %d packets without CNPs, which hides their effect", before.Value, burstPackets)
		}
		p.Check(ten.Value > before.Value+10, "bursts that take longer after ten CNPs than before", "%.4g us before, %.4g us after them", before.Value, ten.Value)
		p.Check(all[len(all)-1].Name == "rate/comes-back", fmt.Sprintf("bursts as short as before within %v", p.ResponseTimeout()), "longer ones: %.4g us before", before.Value)
	}),
}})

// markedWrite returns a WRITE as the peer's n-th request packet, with a CE mark.
func markedWrite(c *Conn, n int) ib.Packet {
	return ib.WriteOnly(c.PeerPSN(n), c.RETH(0, 8), Data(8)).CE()
}

// cnpGeneration measures the time from a CE mark to the CNP, and the number of CNPs for one mark.
func cnpGeneration(p *Port) []Measurement {
	c := p.Connect(Setup{})
	times, cnps := make([]time.Duration, 0, sampleCount(p)), make([]float64, 0, sampleCount(p))
	for i := range sampleCount(p) / 2 {
		sent := c.Send(markedWrite(c, i))
		times = append(times, c.Await("a CNP", isCNP).At-sent)
		c.Sleep(maxCNPInterval)
		cnps = append(cnps, float64(1+len(c.drainCNPs(sentSoFar))))
	}
	return []Measurement{
		newTiming("cnp/generation", "from a marked packet to the CNP", times...),
		newMeasurement("cnp/for-a-mark", "CNPs for a single marked packet", Packets, cnps...),
	}
}

// marks is the number of marked packets that cnpPacing sends: back to back in real time, and a
// microsecond apart in virtual time.
const marks = 500

// cnpPacing measures the time between CNPs for a queue pair that receives only marked packets.
func cnpPacing(p *Port) []Measurement {
	c := p.Connect(Setup{})
	start := p.Now()
	for i := range marks {
		c.Send(markedWrite(c, i))
		if p.Virtual { // a send takes no virtual time
			p.Sleep(time.Microsecond)
		}
	}
	spacing := (p.Now() - start) / marks
	p.Sleep(maxCNPInterval)
	cnps := c.drainCNPs(sentSoFar)
	all := []Measurement{
		newTiming("cnp/marks-apart", "between marked packets sent back to back", spacing),
		newMeasurement("cnp/for-500-marks", "CNPs for 500 marked packets", Packets, float64(len(cnps))),
	}
	if len(cnps) < 2 {
		return all
	}
	apart := make([]time.Duration, 0, len(cnps))
	for i := range cnps[1:] {
		apart = append(apart, cnps[i+1].At-cnps[i].At)
	}
	return append(all, newTiming("cnp/apart", "between the CNPs for 500 marked packets", apart...))
}

// cnpScope measures whether a device paces CNPs per port, peer or queue pair: three queue
// pairs, two of them with the same peer, receive a marked packet at the same time.
func cnpScope(p *Port) []Measurement {
	conns := []*Conn{p.Connect(Setup{}), p.Connect(Setup{}), p.Connect(Setup{PeerIndex: 1})}
	for _, c := range conns {
		c.Send(markedWrite(c, 0))
	}
	p.Sleep(maxCNPInterval)
	cnps := make(map[uint32]float64)
	for _, cnp := range p.drainCNPs(sentSoFar) {
		cnps[cnp.DestQP()]++
	}
	count := func(cs ...*Conn) (n float64) {
		for _, c := range cs {
			n += cnps[uint32(c.Attr.DestQPN)]
		}
		return n
	}
	return []Measurement{
		newMeasurement("cnp/two-qps-of-a-peer", "CNPs for two queue pairs of one peer, marked at the same time", Packets, count(conns[:2]...)),
		newMeasurement("cnp/qp-of-another-peer", "CNPs for a queue pair of another peer, marked at the same time", Packets, count(conns[2])),
	}
}

// burstPackets is the length of bursts that measure a rate: shorter than any window.
const burstPackets = 60

// rateResolution is the time in which a rate recovers, divided by the error of its measurement.
const rateResolution = 20

// rateProbe is a connection on which the device sends bursts.
type rateProbe struct {
	conn           *Conn
	sent, messages int // number of packets and of WRITEs so far
}

// burst returns the time from the first packet to the last of a WRITE of burstPackets packets.
func (f *rateProbe) burst() time.Duration {
	f.conn.PostSend(f.conn.QP, f.conn.WriteWR(1, burstPackets*MTU))
	all := f.conn.AwaitPackets(burstPackets)
	f.sent, f.messages = f.sent+burstPackets, f.messages+1
	f.conn.completeWith(f.conn.peerAck(f.sent-1, uint32(f.messages)), 1)
	return all[len(all)-1].At - all[0].At
}

// rates measures the duration of a burst before a CNP, after one and after ten, and the
// time until bursts are nearly as short as at first.
func rates(p *Port) []Measurement {
	f := &rateProbe{conn: p.Connect(Setup{})}
	before := []time.Duration{f.burst(), f.burst(), f.burst()}
	f.conn.Send(ib.CNP())
	f.conn.Sync() // the device has then processed the CNP
	one := f.burst()
	f.conn.sendCNPs(ib.CNP(), 10)
	ten := f.burst()
	all := []Measurement{
		newTiming("rate/burst/before", "duration of 60 packets before any CNP", before...),
		newTiming("rate/burst/behind-a-cnp", "duration of 60 packets after a CNP", one),
		newTiming("rate/burst/behind-ten", "duration of 60 packets after ten CNPs", ten),
	}
	start := f.conn.Now()
	usual := max(before[0], before[1], before[2], 10*time.Microsecond) // bursts take no time in the simulator
	for deadline := start + f.conn.ResponseTimeout(); f.conn.Now() < deadline; {
		if f.burst() <= 2*usual {
			return append(all, newTiming("rate/comes-back",
				"from the tenth CNP until 60 packets take at most twice as long as before", f.conn.Now()-start))
		}
		f.conn.Sleep(max(time.Millisecond, (f.conn.Now()-start)/rateResolution))
	}
	return all
}
