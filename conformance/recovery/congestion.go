package recovery

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

// cnpPause is longer than any device waits between CNPs.
const cnpPause = 20 * time.Millisecond

func isCNP(a *rcpeer.Arrival) bool { return a.Opcode() == ib.OpCNP }

// marked is the peer's n-th packet, marked on its way.
func marked(c *rcpeer.Conn, n int) ib.Packet {
	return ib.WriteOnly(c.PSN(n), c.At(0, 8), rcpeer.Data(8)).CE()
}

// cnpGeneration measures how long it takes from a marked packet to the CNP, and how
// many there are for a mark by itself.
func cnpGeneration(p *rcpeer.Port) []Measurement {
	c := p.Connect(rcpeer.Setup{})
	times, cnps := make([]time.Duration, 0, repeated(p)), make([]float64, 0, repeated(p))
	for i := range repeated(p) / 2 {
		sent := c.Put(marked(c, i))
		times = append(times, c.Await("a CNP", isCNP).At-sent)
		c.Sleep(cnpPause)
		n := 1
		for _, a := range c.Drain(0) {
			if isCNP(&a) {
				n++
			}
		}
		cnps = append(cnps, float64(n))
	}
	return []Measurement{timed("cnp/generation", times), measured("cnp/for-a-mark", Packets, cnps)}
}

// marks is how many marked packets come as densely as the bench can have them, or a
// microsecond apart in virtual time.
const marks = 500

// cnpPacing measures the time between CNPs to one queue pair whose packets are all
// marked.
func cnpPacing(p *rcpeer.Port) []Measurement {
	c := p.Connect(rcpeer.Setup{})
	begun := p.Now()
	for i := range marks {
		c.Put(marked(c, i))
		if p.Virtual {
			p.Sleep(time.Microsecond)
		}
	}
	spacing := (p.Now() - begun) / marks
	p.Sleep(cnpPause)
	var at []time.Duration
	for _, a := range c.Drain(0) {
		if isCNP(&a) {
			at = append(at, a.At)
		}
	}
	all := []Measurement{
		timed("cnp/marks-apart", []time.Duration{spacing}),
		measured(fmt.Sprintf("cnp/for-%d-marks", marks), Packets, []float64{float64(len(at))}),
	}
	if len(at) < 2 {
		return all
	}
	apart := make([]time.Duration, 0, len(at))
	for i := range at[1:] {
		apart = append(apart, at[i+1]-at[i])
	}
	return append(all, timed("cnp/apart", apart))
}

// cnpScope measures for whom a device paces its CNPs: how many of three queue pairs
// get one whose packets are marked at the same time, of which two have the same peer.
func cnpScope(p *rcpeer.Port) []Measurement {
	conns := []*rcpeer.Conn{p.Connect(rcpeer.Setup{}), p.Connect(rcpeer.Setup{}), p.Connect(rcpeer.Setup{Peer: 1})}
	for _, c := range conns {
		c.Put(marked(c, 0))
	}
	p.Sleep(cnpPause)
	told := make(map[uint32]float64)
	for _, a := range p.Drain(0) {
		if isCNP(&a) {
			told[a.DestQP()]++
		}
	}
	of := func(cs ...*rcpeer.Conn) (n float64) {
		for _, c := range cs {
			n += told[uint32(c.Attr.DestQPN)]
		}
		return n
	}
	return []Measurement{
		measured("cnp/two-qps-of-a-peer", Packets, []float64{of(conns[:2]...)}),
		measured("cnp/qp-of-another-peer", Packets, []float64{of(conns[2])}),
	}
}

// Bursts by which a rate is measured, in packets: fewer than any window.
const burstPackets = 60

// flow is a connection on which the device sends as fast as it may.
type flow struct {
	*rcpeer.Conn
	sent, messages int
}

// burst returns how long it takes from the first packet to the last.
func (f *flow) burst() time.Duration {
	f.Post(f.QP, f.Writing(1, burstPackets))
	all := f.Take(burstPackets)
	f.sent, f.messages = f.sent+burstPackets, f.messages+1
	f.Put(ib.Ack(f.SQ(f.sent-1), uint32(f.messages)))
	f.Completes(1, verbs.WCSuccess)
	return all[len(all)-1].At - all[0].At
}

// cnpInterval is how often a receiver answers the marks of a flow, as published: after
// that the one before it has had its effect, and a sender has not raised its rate yet.
const cnpInterval = 50 * time.Microsecond

// attention is how long it takes at most until a device in software looks at its wire by
// itself, when its program has just stopped to: CNPs that it sees at once count as one.
const attention = 3 * time.Millisecond

// notify sends CNPs as dense as a receiver does, and waits until the device has seen
// them.
func (f *flow) notify(n int) {
	f.Sleep(attention)
	for range n {
		f.Put(ib.CNP())
		f.Compute(cnpInterval)
	}
	f.Settle()
}

// rates measures how long a burst takes before a CNP, right behind one and behind ten,
// and how long it takes until bursts are as short again as they were, or nearly.
func rates(p *rcpeer.Port) []Measurement {
	f := &flow{Conn: p.Connect(rcpeer.Setup{})}
	before := []time.Duration{f.burst(), f.burst(), f.burst()}
	f.Put(ib.CNP())
	f.Settle()
	one := f.burst()
	f.notify(10)
	ten := f.burst()
	all := []Measurement{
		timed("rate/burst/before", before), timed("rate/burst/behind-a-cnp", []time.Duration{one}), timed("rate/burst/behind-ten", []time.Duration{ten}),
	}
	begun := f.Now()
	usual := max(before[0], before[1], before[2], 10*time.Microsecond)
	for until := begun + f.Patience(); f.Now() < until; f.Sleep(time.Millisecond) {
		if f.burst() <= 2*usual {
			return append(all, timed("rate/comes-back", []time.Duration{f.Now() - begun}))
		}
	}
	return all
}
