package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// markNeedsCNP counts a CE mark and reports whether a CNP must answer it. notifier limits CNPs to
// one per Config.CNPInterval.
func (q *QP) markNeedsCNP(now mono.Time, notifier *cnpNotifier) bool {
	q.nic.Count.ECNMarked++
	return notifier.OnMark(now, q.nic.cfg.CNPInterval)
}

// notifierFor returns the CNP rate limiter of a flow. The table is cleared when it
// is full, so that marks from many addresses do not exhaust memory.
func (n *NIC) notifierFor(f flow) *cnpNotifier {
	const limit = 1 << 12
	if n.flows[f] == nil {
		if len(n.flows)%limit == 0 { // none yet, or full
			n.flows = map[flow]*cnpNotifier{}
		}
		n.flows[f] = new(cnpNotifier)
	}
	return n.flows[f]
}

// noteCongestion schedules a CNP to a connected peer if d has a CE mark and none was sent recently.
func (q *QP) noteCongestion(now mono.Time, d *link.Datagram, pkey uint16) {
	if d.ECNBits() == link.CE && q.markNeedsCNP(now, &q.notifier) {
		q.scheduleCNP(pkey)
	}
}

// noteDatagramCongestion schedules a CNP to the sender of a UD datagram with a CE mark, limited per
// sender, not per QP. Multicast datagrams cause none: every group member would send one.
func (q *QP) noteDatagramCongestion(now mono.Time, d *link.Datagram, p *wire.Packet) {
	if d.ECNBits() != link.CE || d.Dst.Addr().IsMulticast() {
		return
	}
	sender := flow{peer: d.Src.Addr(), own: d.Dst.Addr(), qpn: p.DETH.SrcQP}
	if q.markNeedsCNP(now, q.nic.notifierFor(sender)) {
		q.nic.queueCNP(d, p.BTH.PKey, p.DETH.SrcQP)
	}
}

func (q *QP) scheduleCNP(pkey uint16) {
	q.cnpDue, q.cnpPKey = true, pkey
	q.wake()
}

// queueCNP queues a CNP to QP qpn at the source of d. If the queue, which may be as long as one of
// MADs, is full, it counts and drops the CNP.
func (n *NIC) queueCNP(d *link.Datagram, pkey uint16, qpn uint32) {
	if len(n.cnps) >= n.cfg.Limits.MADsQueue {
		n.Count.CNPsLost++
		return
	}
	pa := n.cfg.defaultPath(d.Dst.Addr(), d.Src.Addr())
	n.cnps = append(n.cnps, pendingCNP{path: pa, pkey: pkey, qpn: qpn})
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
	case (q.pkey()^p.BTH.PKey)&^member != 0:
		n.dropPKey()
	case q.cfg.Type != verbs.QPTypeUD && !q.path.matches(d):
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

// recoverRate handles expired timers of the rate limit. It wakes the QP if a packet that waited
// (paced) may be sent.
func (q *QP) recoverRate(now mono.Time) {
	if !q.limiter.active {
		return
	}
	q.limiter.HandleTimer(now, &q.nic.cfg.Congestion)
	if q.req.paced && (!q.limiter.active || q.limiter.readyAt <= now) {
		q.req.paced = false
		q.wake()
	}
}
