package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// congested counts a congestion mark and reports whether it is to be answered
// with a CNP: marks of one QP that follow closely share one.
func (q *QP) congested(now mono.Time, d *link.Datagram) bool {
	if d.ECNBits() != link.CE || q.nic.q.NoCongestion {
		return false
	}
	q.nic.Count.ECNMarked++
	return q.nic.q.CNPBurst || q.notifier.Mark(now, q.nic.cfg.CNPInterval)
}

// noteCongestion schedules a CNP to the peer of a connected QP.
func (q *QP) noteCongestion(now mono.Time, d *link.Datagram) {
	if q.congested(now, d) {
		q.cnpDue = true
		q.wake()
	}
}

// pendingCNP is a CNP to a sender of datagrams, whom no QP of ours is
// connected to.
type pendingCNP struct {
	path path
	pkey uint16
	qpn  uint32
}

func (n *NIC) queueCNP(d *link.Datagram, pkey uint16, qpn uint32) {
	if len(n.cnps) >= n.cfg.Limits.MADsQueue || d.Dst.Addr().IsMulticast() {
		return
	}
	pa := n.plainPath(d.Dst.Addr(), d.Src.Addr())
	n.cnps = append(n.cnps, pendingCNP{path: pa, pkey: pkey, qpn: qpn})
}

// buildCNP builds a congestion notification for QP qpn at the end of pa.
func (n *NIC) buildCNP(d *link.Datagram, pa *path, pkey uint16, qpn uint32) {
	p := &n.scratch
	p.BTH = wire.BTH{Opcode: wire.CNP, PKey: pkey, BECN: true, DestQP: qpn}
	clear(begin(d, pa, p, wire.CNPPayloadLen))
	d.TClass &^= link.ECN // a CNP is itself never marked
	n.seal(d, &pa.icrc)
	n.Count.CNPsSent++
}

// takeCNP slows the named QP down. It has no PSN and changes nothing else.
func (n *NIC) takeCNP(now mono.Time, d *link.Datagram, p *wire.Packet) {
	q := n.qp(p.BTH.DestQP)
	switch {
	case q == nil:
		n.Count.DropQPN++
	case n.q.NoCongestion:
		n.Count.DropOpcode++
	case !n.pkeyOK(q.pkey, p.BTH.PKey):
		n.Count.DropPKey++
		n.badPKeys++
	case q.path.dst.IsValid() && !q.onPath(d, p.BTH.MigReq):
		n.Count.DropAddress++
	default:
		n.Count.CNPsHandled++
		q.limiter.OnCNP(now, &n.cfg.Congestion)
		q.rearm()
	}
}
