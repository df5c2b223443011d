package roce

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// syncConn is a connection for zero-length WRITEs. The ACK of a WRITE shows that the
// device has processed all earlier packets.
type syncConn struct {
	p   *Port
	qp  verbs.QP
	psn ib.PSN
	mem *rig.Memory // some NICs check the R_Key of a zero-length WRITE
}

// Numbers of the connection, distinct from those of others.
const (
	syncQPN = 0xca4a51
	syncPSN = 0x400000
)

func newSyncConn(p *Port) *syncConn {
	c := &syncConn{p: p, psn: syncPSN, mem: p.Memory(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)}
	cq, err := p.Device.CreateCQ(verbs.CQInit{Depth: 16})
	p.Must("a completion queue", err)
	c.qp, err = p.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: p.PD, SendCQ: cq, RecvCQ: cq,
		Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.Must("another queue pair", err)
	p.ToInit(c.qp, verbs.AccessRemoteWrite, 0)
	a := p.peerAttr(p.Peers[0])
	a.DestQPN, a.RQPSN = syncQPN, syncPSN
	p.ToRTR(c.qp, a)
	return c
}

// sendRequest sends a WRITE that the device must acknowledge.
func (c *syncConn) sendRequest() {
	write := ib.WriteOnly(c.psn, ib.At(c.mem.Addr(), c.mem.RKey(), 0), nil).AckReq()
	c.p.SendPacket(write.To(uint32(c.qp.QPN())).Via(c.p.Peers[0], c.p.Local[0]))
	c.psn = c.psn.Add(1)
}

// isAck reports whether a packet is the ACK of the last request.
func (c *syncConn) isAck(a *Arrival) bool {
	return a.DestQP() == syncQPN && a.PSN() == c.psn.Add(-1)
}

// Sync waits until the device has processed all packets sent before, shown by an ACK on
// another connection. Other packets received meanwhile are kept.
func (p *Port) Sync() {
	if p.syncConn == nil {
		p.syncConn = newSyncConn(p)
	}
	p.syncConn.sendRequest()
	if _, ok := p.NextMatching(p.syncConn.isAck, p.ResponseTimeout()); !ok {
		p.Fail("a device that answers its other connections", "nothing in %v", p.ResponseTimeout())
	}
}

// expectNoCompletion fails the case if the device has completed a request or a receive by
// the time it has processed all packets sent before.
func (p *Port) expectNoCompletion() {
	p.Sync()
	p.ExpectNoCompletion()
}

// SyncQP returns the queue pair that Sync uses; nil before the first Sync.
func (p *Port) SyncQP() verbs.QP {
	if p.syncConn == nil {
		return nil
	}
	return p.syncConn.qp
}

// reorderLimit is how late, in real time, a packet may arrive after the ACK of Sync though
// the device owed it before: hardware schedules queue pairs independently.
const reorderLimit = 20 * time.Millisecond

// NextAfterSync calls Sync and returns the first packet that the device has sent until
// then, or sends within quiet. Keep quiet shorter than the device's running timers. In
// real time quiet is limited to reorderLimit.
func (p *Port) NextAfterSync(quiet time.Duration) (Arrival, bool) {
	p.Sync()
	return p.NextPacket(p.silenceTimeout(quiet))
}

// silenceTimeout returns how long to wait after Sync.
func (p *Port) silenceTimeout(quiet time.Duration) time.Duration {
	if p.Virtual {
		return quiet
	}
	return min(quiet, reorderLimit)
}

// Drain returns all packets that the device has sent until [Port.Sync] returns, and within
// quiet after the last; see [Port.NextAfterSync].
func (p *Port) Drain(quiet time.Duration) (all []Arrival) {
	for a, ok := p.NextAfterSync(quiet); ok; a, ok = p.NextPacket(p.silenceTimeout(quiet)) {
		all = append(all, a)
	}
	return all
}
