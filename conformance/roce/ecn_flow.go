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

// flow is a connection on which the device sends as fast as it can.
type flow struct {
	*conn
	sent int // packets
	mtu  int
	from *rig.Memory
}

// flowPackets is how many packets a burst has: fewer than any window. They are as
// long as the port allows, so that their length, and not their number, takes the time.
const flowPackets = 64

// onFlow makes a case of a body that measures how fast the device sends.
func onFlow(body func(*flow)) func(*conformance.Bench) error {
	return onPort(func(p *port) { body(p.flow(peerQPN)) })
}

// flow makes one to this queue pair of the peer's.
func (p *port) flow(to verbs.QPN) *flow {
	attr, err := p.Device.QueryPort(1)
	p.Must("a port that can be queried", err)
	c := p.connect(setup{signalAll: true, modify: func(a *verbs.QPAttr) { a.DestQPN, a.PathMTU = to, attr.ActiveMTU }})
	mtu := attr.ActiveMTU.Bytes()
	p.Sync() // a host that has yet to find its peer's address loses most of a burst
	return &flow{conn: c, mtu: mtu, from: p.Memory(flowPackets*mtu, verbs.AccessLocalWrite)}
}

// burst has the device send, and returns how long it took from the first packet to the
// last. It takes the shortest of some times: what the bench delays is not the device's.
func (f *flow) burst() time.Duration {
	nothing := func() {}
	return min(f.burstOnce(nothing), f.burstOnce(nothing), f.burstOnce(nothing))
}

// burstWith is burst with something done about it, and returns the second shortest of
// three times: a bench that was away for long has had a rate rise again.
func (f *flow) burstWith(s cnpSource) time.Duration {
	var took [3]time.Duration
	for i := range took {
		s.before()
		took[i] = f.burstOnce(s.each)
	}
	slices.Sort(took[:])
	return took[1]
}

// burstOnce has the device send a WRITE, and calls do for each of its packets. The WRITE
// is posted by a task: do is also called until the first packet comes, so that a verb
// call that takes long leaves no pause in which a reduced rate rises again.
func (f *flow) burstOnce(do func()) time.Duration {
	post := f.Go("post", func() error {
		_, err := f.qp.PostSend([]verbs.SendWR{{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: f.from.SGL(0, flowPackets*f.mtu), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}}})
		return err
	})
	var first, last time.Duration
	for i := range flowPackets {
		pkt, ok := f.nextPacket(cnpInterval)
		for until := f.Now() + f.ResponseTimeout(); !ok && f.Now() < until; pkt, ok = f.nextPacket(cnpInterval) {
			do()
		}
		f.Check(ok, fmt.Sprintf("a WRITE of %d packets", flowPackets), "%d", i)
		f.checkPacket(ib.Packet{}.WithPSN(f.devicePSN(f.sent)), pkt)
		if i == 0 {
			first = f.lastArrival
		}
		last = f.lastArrival
		f.sent++
		do() // which may take as long as the device does
	}
	took := last - first
	f.Must("a WRITE that can be posted", post.Wait(f.ResponseTimeout()))
	f.send(ib.Ack(f.devicePSN(f.sent-1), 0))
	f.ExpectCompletion(1, verbs.WCSuccess)
	return took
}

// cnpSource is what is done to have a device send more slowly, before a burst and at each
// packet: a rate that was reduced rises again at once if CNPs stop.
type cnpSource struct{ before, each func() }

// cnpSource sends some of these CNPs before a burst, as dense as a receiver sends them,
// and goes on with it. They are so many that a device which is far slower than its line
// has to become slower still.
func (f *flow) cnpSource(cnp ib.Packet) cnpSource {
	return cnpSource{func() { f.sendCNPs(cnp) }, func() { f.send(cnp) }}
}

// sendCNPs sends many CNPs, and waits until the device has seen them.
func (c *conn) sendCNPs(cnp ib.Packet) {
	c.Sleep(pollLatency)
	for range 20 {
		c.send(cnp)
		c.Compute(cnpInterval)
	}
	c.Sync()
}

// Times of a burst between which rates can be told apart. Where bits take no time the
// device's pace cannot be measured; where the device is slow by itself, or its
// computer busy, a reduced rate would not show.
const (
	flowQuick = 100 * time.Microsecond
	flowSlow  = time.Millisecond
)

// expectSlower ends the case unless a burst took at least twice as long as before.
func (f *flow) expectSlower(before, after time.Duration) {
	limit := 2 * max(before, flowQuick)
	if after < limit && before > flowSlow {
		rig.Abort(fmt.Errorf("the device takes %v for %d packets by itself, and may be slower than it was told to be: %w", before, flowPackets, conformance.ErrBenchCannot))
	}
	f.Check(after >= limit, fmt.Sprintf("half the rate or less: %v or more for %d packets", limit, flowPackets), "%v", after)
}

// expectSameRate ends the case if a burst took much longer than before: what was reduced by as
// many CNPs takes far longer than a bench that has more to do.
func (f *flow) expectSameRate(before, after time.Duration) {
	limit := 4 * max(before, flowSlow)
	f.Check(after < limit, fmt.Sprintf("the same rate: less than %v for %d packets", limit, flowPackets), "%v", after)
}
