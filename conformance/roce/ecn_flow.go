package roce

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// flow is a connection on which a case measures the sending rate of the device.
type flow struct {
	*Conn
	sent int // packets so far
	mtu  int
	from *rig.Memory
}

// flowPackets is the number of packets in a burst, fewer than any window. They have the
// port's MTU, so that the line rate and not the packet rate limits the burst.
const flowPackets = 64

// onFlow makes the body of a case from a function that uses a flow.
func onFlow(body func(*flow)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.newFlow(peerQPN)) })
}

// newFlow makes a flow to a queue pair of the peer.
func (p *Port) newFlow(to verbs.QPN) *flow {
	attr := p.QueryPort()
	c := p.connect(Setup{signalAll: true, Modify: func(a *verbs.QPAttr) { a.DestQPN, a.PathMTU = to, attr.ActiveMTU }})
	mtu := attr.ActiveMTU.Bytes()
	p.Sync() // resolve the peer's address first: the host would drop most of a burst meanwhile
	return &flow{Conn: c, mtu: mtu, from: p.Memory(flowPackets*mtu, verbs.AccessLocalWrite)}
}

// burst returns how long the device takes from the first packet of a burst to the last.
// It returns the shortest of three measurements, because the bench can only add delay.
func (f *flow) burst() time.Duration {
	nothing := func() {}
	return min(f.burstOnce(nothing), f.burstOnce(nothing), f.burstOnce(nothing))
}

// burstWith is burst under congestion. It returns the median of three measurements: the
// rate may rise again during a long pause of the bench.
func (f *flow) burstWith(s cnpSource) time.Duration {
	var took [3]time.Duration
	for i := range took {
		s.before()
		took[i] = f.burstOnce(s.each)
	}
	slices.Sort(took[:])
	return took[1]
}

// burstOnce has the device send a WRITE and calls do for each of its packets. A task
// posts the WRITE and do is also called until the first packet arrives, so that a slow
// verb call leaves no pause in which a reduced rate rises again.
func (f *flow) burstOnce(do func()) time.Duration {
	post := f.Go("post", func() error {
		_, err := f.QP.PostSend([]verbs.SendWR{{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: f.from.SGL(0, flowPackets*f.mtu), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}}})
		return err
	})
	var first, last time.Duration
	for i := range flowPackets {
		pkt, ok := f.nextPacket(cnpInterval)
		for until := f.Now() + f.ResponseTimeout(); !ok && f.Now() < until; pkt, ok = f.nextPacket(cnpInterval) {
			do()
		}
		f.Check(ok, fmt.Sprintf("a WRITE of %d packets", flowPackets), "%d", i)
		f.checkPacket(ib.Packet{}.WithPSN(f.DevicePSN(f.sent)), pkt)
		if i == 0 {
			first = f.lastArrival
		}
		last = f.lastArrival
		f.sent++
		do() // do may take as long as the device
	}
	took := last - first
	f.Must("a WRITE that can be posted", post.Wait(f.ResponseTimeout()))
	f.completeWith(ib.Ack(f.DevicePSN(f.sent-1), 0), 1)
	return took
}

// cnpSource sends CNPs before a burst, and one for each packet of it: a reduced rate
// rises again as soon as CNPs stop.
type cnpSource struct{ before, each func() }

// cnpsOf returns a source of this CNP. It sends enough of them before a burst to slow
// down even a device that is far slower than its line.
func (f *flow) cnpsOf(cnp ib.Packet) cnpSource {
	return cnpSource{func() { f.sendCNPs(cnp, 20) }, func() { f.Send(cnp) }}
}

// sendCNPs sends n CNPs at the published interval, and waits until the device has
// processed them.
func (c *Conn) sendCNPs(cnp ib.Packet, n int) {
	c.Sleep(pollLatency)
	for range n {
		c.Send(cnp)
		c.Compute(cnpInterval)
	}
	c.Sync()
}

// Bounds for the duration of a burst. Below flowQuick, the simulator spends no time per
// bit and the rate cannot be measured; above flowSlow, the device or its host is so slow
// that a reduced rate would not show.
const (
	flowQuick = 100 * time.Microsecond
	flowSlow  = time.Millisecond
)

// expectSlower fails the case unless a burst took at least twice as long as before.
func (f *flow) expectSlower(before, after time.Duration) {
	limit := 2 * max(before, flowQuick)
	if after < limit && before > flowSlow {
		rig.Abort(fmt.Errorf("the device takes %v for %d packets without CNPs, and may be slower than the reduced rate: %w", before, flowPackets, conformance.ErrBenchCannot))
	}
	f.Check(after >= limit, fmt.Sprintf("half the rate or less: %v or more for %d packets", limit, flowPackets), "%v", after)
}

// expectSameRate fails the case if a burst took four times as long as before. Reduced
// rates make it far longer, other work of the bench does not.
func (f *flow) expectSameRate(before, after time.Duration) {
	limit := 4 * max(before, flowSlow)
	f.Check(after < limit, fmt.Sprintf("the same rate: less than %v for %d packets", limit, flowPackets), "%v", after)
}
