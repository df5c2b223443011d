package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/dcqcn"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// congested counts a congestion mark and reports whether it is to be answered
// with a CNP: marks of one QP that follow closely share one.
func (q *QP) congested(now mono.Time, d *link.Datagram) bool {
	if d.ECNBits() != link.CE || q.nic.q.NoCongestion {
		return false
	}
	q.nic.Count.ECNMarked++
	if q.nic.q.CNPBurst {
		return true
	}
	notifier := &q.notifier
	switch {
	case q.nic.q.CNPPerPort:
		notifier = &q.nic.portNotifier
	case q.nic.q.CNPPerPeer:
		notifier = q.nic.peerNotifier(d.Src.Addr(), d.Dst.Addr())
	}
	return notifier.Mark(now, q.nic.cfg.CNPInterval)
}

// peerNotifier paces the CNPs between two addresses (Quirks.CNPPerPeer). What
// it remembers is bounded: whoever marks from many addresses starts it anew.
func (n *NIC) peerNotifier(peer, own netip.Addr) *dcqcn.Notifier {
	const limit = 1 << 12
	pair := [2]netip.Addr{peer, own}
	if n.peerNotifiers[pair] == nil {
		if len(n.peerNotifiers)%limit == 0 {
			n.peerNotifiers = map[[2]netip.Addr]*dcqcn.Notifier{}
		}
		n.peerNotifiers[pair] = new(dcqcn.Notifier)
	}
	return n.peerNotifiers[pair]
}

// noteCongestion schedules a CNP to the peer of a connected QP.
func (q *QP) noteCongestion(now mono.Time, d *link.Datagram, pkey uint16) {
	if q.congested(now, d) {
		q.oweCNP(pkey)
	}
}

func (q *QP) oweCNP(pkey uint16) {
	q.cnpDue, q.cnpPKey = true, pkey
	q.wake()
}

// heldBack reports whether the QP's rate lets no packet leave now, and sees to
// it that the QP is woken when it does.
func (q *QP) heldBack(now mono.Time) bool {
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
	if !n.q.CNPCounterStuck {
		n.Count.CNPsSent++
	}
}

// takeCNP slows the named QP down. It has no PSN and changes nothing else. Its
// P_Key is the QP's own come back, so it says nothing about membership.
func (n *NIC) takeCNP(now mono.Time, d *link.Datagram, p *wire.Packet) {
	const member = 0x8000
	q := n.qp(p.BTH.DestQP)
	switch {
	case q == nil || d.Dst.Addr().IsMulticast():
		n.Count.DropQPN++
	case n.q.NoCongestion:
		n.Count.DropOpcode++
	case len(p.Payload) != wire.CNPPayloadLen:
		n.Count.DropLength++
	case q.state < verbs.QPStateRTR || q.state == verbs.QPStateErr:
		n.Count.DropQPState++
	case (q.pkey^p.BTH.PKey)&^member != 0:
		n.Count.DropPKey++
		n.badPKeys++
	case q.typ != verbs.QPTypeUD && !q.path.joins(d):
		n.Count.DropAddress++
	default:
		n.Count.CNPsHandled++
		q.limiter.OnCNP(now, &n.cfg.Congestion)
		q.rearm()
	}
}
