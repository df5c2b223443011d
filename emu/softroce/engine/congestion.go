package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// countCongestionMark counts a CE mark and reports whether to send a CNP. notifier
// limits CNPs to one per Config.CNPInterval.
func (q *QP) countCongestionMark(now mono.Time, notifier *cnpNotifier) bool {
	q.nic.Count.ECNMarked++
	return notifier.OnMark(now, q.nic.cfg.CNPInterval)
}

// flow identifies a sender of UD datagrams, or a pair of addresses, for which CNPs
// are rate limited.
type flow struct {
	peer, own netip.Addr
	qpn       uint32
}

// notifierFor returns the CNP rate limiter of a flow. The table is cleared when it
// is full, so that marks from many addresses do not exhaust memory.
func (n *NIC) notifierFor(f flow) *cnpNotifier {
	const limit = 1 << 12
	if n.flows[f] == nil {
		if len(n.flows)%limit == 0 {
			n.flows = map[flow]*cnpNotifier{}
		}
		n.flows[f] = new(cnpNotifier)
	}
	return n.flows[f]
}

// noteCongestion schedules a CNP to the peer of a connected QP.
func (q *QP) noteCongestion(now mono.Time, d *link.Datagram, pkey uint16) {
	if d.ECNBits() == link.CE && q.countCongestionMark(now, &q.notifier) {
		q.scheduleCNP(pkey)
	}
}

// noteDatagramCongestion schedules a CNP to the sender of a UD datagram. CNPs are
// limited per sender, not per QP. Multicast datagrams cause none: every group
// member would send one.
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

// rateLimited reports whether congestion control delays the QP's next packet. If
// so, the QP is woken when the packet may be sent.
func (q *QP) rateLimited(now mono.Time) bool {
	if !q.limiter.Active() || q.limiter.ReadyAt() <= now {
		return false
	}
	q.req.paced = true
	return true
}

// pendingCNP is a CNP to the sender of a UD datagram.
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

// buildCNP builds a CNP for QP qpn at the destination of pa.
func (n *NIC) buildCNP(d *link.Datagram, pa *path, pkey uint16, qpn uint32) {
	p := &n.scratch
	p.BTH = wire.BTH{Opcode: wire.CNP, PKey: pkey, BECN: true, DestQP: qpn}
	clear(writeHeaders(d, pa, p, wire.CNPPayloadLen))
	d.TClass &^= link.ECN // CNPs are not ECN-capable
	n.seal(d, &pa.icrc)
	n.Count.CNPsSent++
}

// handleCNP reduces the rate of the destination QP. A CNP has no PSN. It carries
// the P_Key of the QP's own packet, so the membership bit is not checked.
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
