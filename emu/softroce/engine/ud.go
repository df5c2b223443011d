package engine

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// privilegedQKey is the bit of a posted Q_Key that selects the Q_Key of the QP instead.
const privilegedQKey = 1 << 31

// sendDatagram builds a UD QP's next packet, whose send completes at once; false if there is none.
func (q *QP) sendDatagram(now mono.Time, d *link.Datagram) bool {
	r := &q.req
	for r.cur != q.sq.tail && q.state == verbs.QPStateRTS {
		if q.rateLimited(now) {
			return false
		}
		w := q.sq.at(r.cur)
		n := int(w.Length)
		limit := q.nic.MTU().Bytes()
		switch {
		case n <= limit:
		case q.nic.cfg.UDOversizeError:
			q.localError(w, verbs.WCLocLenErr)
			return false
		default: // dropped silently, as the IBTA specifies
			r.next = r.next.Next()
			q.datagramSent(w)
			continue
		}
		if !q.buildDatagram(d, w, min(n, limit)) {
			return false
		}
		r.next = r.next.Next()
		q.chargeRate(now, d)
		q.datagramSent(w)
		return true
	}
	return false
}

// datagramSent completes w, a UD send: no ACK follows.
func (q *QP) datagramSent(w *sendWQE) {
	q.req.acknowledgeSent()
	w.state = wqeDone
	q.retire()
}

// buildDatagram makes d the packet of a UD send of n bytes. If the memory of the send is not
// accessible, the send fails, and buildDatagram returns false. The QP's own Q_Key replaces a
// privileged one in the request, unless the policy PrivilegedQKeySent is set.
func (q *QP) buildDatagram(d *link.Datagram, w *sendWQE, n int) bool {
	op := wire.OpSendOnly
	if w.Op == verbs.OpSendImm {
		op = wire.OpSendOnlyImm
	}
	qkey := w.qkey
	if qkey&privilegedQKey != 0 && !q.nic.policy.PrivilegedQKeySent { // the QP's own Q_Key replaces it
		qkey = q.attr.QKey
	}
	p := q.header(op, q.req.next)
	p.BTH.MigReq = false // UD has no path migration
	p.BTH.DestQP = w.qpn
	p.BTH.Solicited = w.Flags&verbs.SendSolicited != 0
	p.DETH = wire.DETH{QKey: qkey, SrcQP: q.num}
	p.Imm = wire.ImmDt(w.Imm)
	pa := &w.ah.path
	q.choosePort(pa)
	payload := writeHeaders(d, pa, p, n)
	if err := w.Gather(&q.nic.Base, q.cfg.PD, payload, 0); err != nil {
		q.localError(w, verbs.WCLocProtErr)
		return false
	}
	q.nic.seal(d, &pa.icrc)
	return true
}

// choosePort sets the UDP source port of a path without flow label to that of the
// QP. The path caches the ICRC of the last QP that used it.
func (q *QP) choosePort(pa *path) {
	if q.nic.cfg.Link.SrcPort != 0 || pa.flowLabel != 0 {
		return
	}
	if port := datagramPort(q.num); pa.src.Port() != port {
		pa.src = netip.AddrPortFrom(pa.src.Addr(), port)
		pa.icrc = wire.NewICRC(pa.src, pa.dst)
	}
}

// dispatchToUDQP checks and delivers a datagram to a UD QP. known is false for undefined opcodes.
func (n *NIC) dispatchToUDQP(now mono.Time, q *QP, d *link.Datagram, p *wire.Packet, known bool) {
	switch {
	case !known:
		n.Count.DropOpcode++
		return
	case len(p.Payload) > wire.MaxMTU:
		n.Count.DropLength++
		return
	case q.state < verbs.QPStateRTR || q.state == verbs.QPStateErr:
		n.Count.DropQPState++
		return
	case !n.qkeyOK(q.attr.QKey, p.DETH.QKey):
		n.dropQKey()
		return
	}
	q.noteDatagramCongestion(now, d, p)
	q.receiveDatagram(d, p)
}

// receiveDatagram writes the GRH and the payload to the next receive. If the receive is too small,
// the datagram is dropped; a receive of an SRQ then completes in error, and the policy
// LongDatagramFatal fails the QP. A receive with invalid memory completes in error and fails the
// QP.
func (q *QP) receiveDatagram(d *link.Datagram, p *wire.Packet) {
	w, pd := q.nextReceive()
	if w == nil {
		q.nic.Count.DropNoReceive++
		return
	}
	grhLen := uint32(verbs.GRHLen)
	total := grhLen + uint32(len(p.Payload))
	if w.Length < total {
		q.nic.Count.DropTooLong++
		if q.cfg.SRQ != nil {
			q.popReceive()
			q.pushRecv(&verbs.WC{WRID: w.WRID, Status: verbs.WCLocLenErr})
		}
		if q.nic.policy.LongDatagramFatal {
			q.fail()
		}
		return
	}
	// The IP header fills the GRH, or its last bytes over IPv4.
	var grh [verbs.GRHLen]byte
	header := grh[:0]
	if d.Is4() {
		header = grh[verbs.GRHLen-link.IPv4HeaderLen:][:0]
	}
	link.AppendIP(header, d, link.ProtocolUDP, link.UDPHeaderLen+len(d.Payload))
	wc := verbs.WC{WRID: w.WRID, Opcode: verbs.WCOpRecv, ByteLen: total, SrcQP: verbs.QPN(p.DETH.SrcQP), Flags: verbs.WCWithGRH}
	err := q.nic.Scatter(w.SGL, pd, 0, grh[:grhLen])
	if err == nil {
		err = q.nic.Scatter(w.SGL, pd, grhLen, p.Payload)
	}
	if err != nil {
		wc.Status = verbs.WCLocProtErr
		q.nic.Count.DropAccess++
	}
	if p.BTH.Opcode.Operation() == wire.OpSendOnlyImm {
		wc.Flags |= verbs.WCWithImm
		wc.Imm = uint32(p.Imm)
	}
	q.popReceive()
	q.resp.solicited = p.BTH.Solicited
	q.pushRecv(&wc)
	if err != nil {
		q.fail()
	}
}

// handleMulticast delivers a datagram to its group's QPs. known is false for undefined opcodes.
func (n *NIC) handleMulticast(now mono.Time, d *link.Datagram, p *wire.Packet, known bool) {
	if !d.Dst.Addr().IsMulticast() || p.BTH.Opcode.Transport() != wire.TransportUD {
		n.Count.DropQPN++
		return
	}
	members := n.mcast[d.Dst.Addr()]
	if len(members) == 0 {
		n.Count.DropQPN++
		return
	}
	for _, q := range members {
		if !n.pkeyOK(q.pkey(), p.BTH.PKey) {
			n.dropPKey()
			continue
		}
		n.dispatchToUDQP(now, q, d, p, known)
	}
}

// Attach attaches a UD QP to a multicast group. If it is attached already, Attach does nothing.
func (n *NIC) Attach(q *QP, group netip.Addr) error {
	members := n.mcast[group]
	switch {
	case q.cfg.Type != verbs.QPTypeUD || !group.IsMulticast():
		return nic.OpError("attach_mcast", q.name(), "%w: %v to group %v", verbs.ErrInvalid, q.cfg.Type, group)
	case n.qps.At(q.num) != q:
		return nic.OpError("attach_mcast", q.name(), "%w: destroyed", verbs.ErrInvalid)
	case slices.Contains(members, q):
		return nil
	case len(members) == 0 && len(n.mcast) >= n.cfg.Limits.McastGroups:
		return nic.OpError("attach_mcast", q.name(), "%w: %d groups", verbs.ErrNoMemory, len(n.mcast))
	case len(members) >= n.cfg.Limits.McastQPs:
		return nic.OpError("attach_mcast", q.name(), "%w: %d QPs in the group", verbs.ErrNoMemory, len(members))
	}
	n.mcast[group] = append(members, q)
	q.groups++
	return nil
}

// Detach detaches a QP from a multicast group.
func (n *NIC) Detach(q *QP, group netip.Addr) error {
	members := n.mcast[group]
	i := slices.Index(members, q)
	if i < 0 {
		return nic.OpError("detach_mcast", q.name(), "%w: not attached to %v", verbs.ErrInvalid, group)
	}
	q.groups--
	if members = slices.Delete(members, i, i+1); len(members) == 0 {
		delete(n.mcast, group)
	} else {
		n.mcast[group] = members
	}
	return nil
}
