package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/dcqcn"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// countCongestionMark counts a congestion mark and reports whether it is to be answered
// with a CNP: marks that own paces and that follow closely share one.
func (q *QP) countCongestionMark(now mono.Time, own *dcqcn.Notifier) bool {
	q.nic.Count.ECNMarked++
	return own.OnMark(now, q.nic.cfg.CNPInterval)
}

// flow is what CNPs are paced by where that is not one of our QPs: a QP that
// sends datagrams to whichever of them, or a pair of addresses.
type flow struct {
	peer, own netip.Addr
	qpn       uint32
}

// notifierFor paces the CNPs of a flow. What it remembers is bounded: whoever
// marks from many addresses starts it anew.
func (n *NIC) notifierFor(f flow) *dcqcn.Notifier {
	const limit = 1 << 12
	if n.flows[f] == nil {
		if len(n.flows)%limit == 0 {
			n.flows = map[flow]*dcqcn.Notifier{}
		}
		n.flows[f] = new(dcqcn.Notifier)
	}
	return n.flows[f]
}

// noteCongestion schedules a CNP to the peer of a connected QP.
func (q *QP) noteCongestion(now mono.Time, d *link.Datagram, pkey uint16) {
	if d.ECNBits() == link.CE && q.countCongestionMark(now, &q.notifier) {
		q.scheduleCNP(pkey)
	}
}

// noteDatagramCongestion schedules a CNP to the sender of a datagram. A QP may hear from
// many, and the marks of one must not leave another unwarned. Nobody is warned
// of what he sends to a group: its members would all say the same.
func (q *QP) noteDatagramCongestion(now mono.Time, d *link.Datagram, p *wire.Packet) {
	if d.ECNBits() != link.CE || d.Dst.Addr().IsMulticast() {
		return
	}
	sender := flow{peer: d.Src.Addr(), own: d.Dst.Addr(), qpn: p.DETH.SrcQP}
	if q.countCongestionMark(now, q.nic.notifierFor(sender)) {
		q.nic.queueCNP(d, p.BTH.PKey, p.DETH.SrcQP)
	}
}

func (q *QP) scheduleCNP(pkey uint16) {
	q.cnpDue, q.cnpPKey = true, pkey
	q.wake()
}

// rateLimited reports whether the QP's rate lets no packet leave now, and sees to
// it that the QP is woken when it does.
func (q *QP) rateLimited(now mono.Time) bool {
	if !q.limiter.Active() || q.limiter.ReadyAt() <= now {
		return false
	}
	q.req.paced = true
	return true
}

// pendingCNP is a CNP to a sender of datagrams, whom no QP of ours is
// connected to.
type pendingCNP struct {
	path path
	pkey uint16
	qpn  uint32
}

func (n *NIC) queueCNP(d *link.Datagram, pkey uint16, qpn uint32) {
	if len(n.cnps) >= n.cfg.Limits.MADsQueue {
		n.Count.CNPsLost++
		return
	}
	pa := n.defaultPath(d.Dst.Addr(), d.Src.Addr())
	n.cnps = append(n.cnps, pendingCNP{path: pa, pkey: pkey, qpn: qpn})
}

// buildCNP builds a congestion notification for QP qpn at the end of pa.
func (n *NIC) buildCNP(d *link.Datagram, pa *path, pkey uint16, qpn uint32) {
	p := &n.scratch
	p.BTH = wire.BTH{Opcode: wire.CNP, PKey: pkey, BECN: true, DestQP: qpn}
	clear(writeHeaders(d, pa, p, wire.CNPPayloadLen))
	d.TClass &^= link.ECN // a CNP is itself never marked
	n.seal(d, &pa.icrc)
	n.Count.CNPsSent++
}

// handleCNP slows the named QP down. It has no PSN and changes nothing else. Its
// P_Key is the QP's own come back, so it says nothing about membership.
func (n *NIC) handleCNP(now mono.Time, d *link.Datagram, p *wire.Packet) {
	const member = 0x8000
	q := n.qps.At(p.BTH.DestQP)
	switch {
	case q == nil || d.Dst.Addr().IsMulticast():
		n.Count.DropQPN++
	case len(p.Payload) != wire.CNPPayloadLen:
		n.Count.DropLength++
	case q.state < verbs.QPStateRTR || q.state == verbs.QPStateErr:
		n.Count.DropQPState++
	case (q.pkey^p.BTH.PKey)&^member != 0:
		n.dropPKey()
	case q.typ != verbs.QPTypeUD && !q.path.matches(d):
		n.Count.DropAddress++
	default:
		n.Count.CNPsHandled++
		q.slowDown(now)
	}
}

func (q *QP) slowDown(now mono.Time) {
	q.limiter.OnCNP(now, &q.nic.cfg.Congestion)
	q.rearm()
}
