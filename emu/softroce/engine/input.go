package engine

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Deadline returns when Tick must be called next, or mono.Never.
func (n *NIC) Deadline() mono.Time { return min(n.timers.Next(), n.holds.next()) }

// StrictDeadline returns when Tick must be called without delay. Unlike Deadline, it leaves out the
// delayed ACKs if none of their peers waits for them: these may be sent a millisecond late.
func (n *NIC) StrictDeadline() mono.Time {
	if n.holds.strict == 0 {
		return n.timers.Next()
	}
	return n.Deadline()
}

// Tick handles all deadlines that have passed: of delayed ACKs (n.holds), and of the QPs' timers.
func (n *NIC) Tick(now mono.Time) {
	for q := n.holds.due(now); q != nil; q = n.holds.due(now) {
		q.delayExpired()
	}
	for {
		q := n.timers.due(now)
		if q == nil {
			return
		}
		q.tick(now)
		q.rearm()
	}
}

// tick handles the expired deadlines of the QP: of congestion control, of the RNR timer and of the
// transport timer.
func (q *QP) tick(now mono.Time) {
	q.recoverRate(now)
	if q.req.rnrUntil <= now {
		q.req.rnrUntil = mono.Never
		q.wake()
	}
	if q.req.timer <= now {
		q.handleTimeout()
	}
}

// Input handles one received datagram. It keeps no reference to d or its payload.
//
// It checks addresses, ICRC and transport headers in this order. A packet that fails a check
// before its transport handles it is counted and dropped without a response.
func (n *NIC) Input(now mono.Time, d *link.Datagram) {
	n.Count.Received++
	n.Count.ReceivedBytes += uint64(len(d.Payload))
	if n.dead || n.portDown {
		n.Count.DropDead++
		return
	}
	if len(d.Payload) < wire.BTHLen+wire.ICRCLen {
		n.Count.DropShort++
		return
	}
	if (d.Src != n.rx.src || d.Dst != n.rx.dst || !d.Dst.IsValid()) && !n.acceptAddrs(d) {
		n.Count.DropAddress++
		return
	}
	if !n.icrcOK(d) {
		n.Count.DropICRC++
		return
	}
	n.dispatch(now, d)
}

// acceptAddrs reports whether a packet is for this NIC, and prepares n.rx for its addresses.
func (n *NIC) acceptAddrs(d *link.Datagram) bool {
	if d.Dst.Port() != wire.Port || !n.owns(d.Dst.Addr()) && !d.Dst.Addr().IsMulticast() {
		return false
	}
	n.rx = receivedICRC{src: d.Src, dst: d.Dst}
	if n.cfg.ICRC != ICRCOffloaded {
		n.rx.ICRC = wire.NewICRC(d.Src, d.Dst)
	}
	return true
}

// icrcOK checks the ICRC. If the link does not show the IP identification, which the ICRC covers,
// it accepts an ICRC that is right for some identification, and stores that identification in d.
func (n *NIC) icrcOK(d *link.Datagram) bool {
	if n.cfg.ICRC == ICRCOffloaded {
		return true
	}
	if d.Variants&link.MayFragment != 0 {
		return false // the ICRC covers DF, which RoCEv2 requires to be set
	}
	if d.IPID < link.IPIDUnknown || d.Src.Addr().Is6() {
		return n.rx.Check(uint16(d.IPID), d.Payload)
	}
	id, ok := n.rx.CheckAnyIPID(d.Payload)
	if ok {
		n.Count.BlindICRC++
		d.IPID = uint32(id)
	}
	return ok
}

// dispatch parses a packet whose ICRC is correct and passes it to its QP.
func (n *NIC) dispatch(now mono.Time, d *link.Datagram) {
	p := &n.parsed
	err := p.Parse(d.Payload)
	known := err == nil
	switch {
	case known:
	case errors.Is(err, wire.ErrShort):
		n.Count.DropShort++
		return
	case errors.Is(err, wire.ErrPad):
		n.Count.DropPad++
		return
	}
	if p.BTH.TVer != 0 {
		n.Count.DropVersion++
		return
	}
	if len(d.Payload)&3 != 0 {
		n.Count.DropPad++
		return
	}
	switch {
	case p.BTH.DestQP == gsiQPN:
		n.handleMAD(d, p, known)
	case p.BTH.DestQP == uint32(verbs.MulticastQPN):
		n.handleMulticast(now, d, p, known)
	case p.BTH.Opcode == wire.CNP:
		n.handleCNP(now, d, p)
	default:
		n.dispatchToQP(now, d, p, known)
	}
}

// dispatchToQP checks transport, state, P_Key and path of a packet against its destination QP,
// and passes the packet to it. known is false for undefined opcodes.
func (n *NIC) dispatchToQP(now mono.Time, d *link.Datagram, p *wire.Packet, known bool) {
	q := n.qps.At(p.BTH.DestQP)
	switch {
	case q == nil || d.Dst.Addr().IsMulticast():
		n.Count.DropQPN++
		return
	case p.BTH.Opcode.Transport() != q.Transport():
		n.Count.DropQPType++
		return
	case q.state == verbs.QPStateReset: // no P_Key is set yet
		n.Count.DropQPState++
		return
	case !n.pkeyOK(q.expectedPKey(p.BTH.MigReq), p.BTH.PKey):
		n.dropPKey()
		return
	}
	if q.cfg.Type == verbs.QPTypeUD {
		n.dispatchToUDQP(now, q, d, p, known)
		return
	}
	if q.state < verbs.QPStateRTR || q.state == verbs.QPStateErr {
		n.Count.DropQPState++
		return
	}
	if !q.acceptPath(d, p.BTH.MigReq) {
		n.Count.DropAddress++
		return
	}
	q.noteCongestion(now, d, p.BTH.PKey)
	q.handlePacket(now, p, known)
}

// handlePacket passes a packet to responder or completer. known is false for undefined opcodes.
func (q *QP) handlePacket(now mono.Time, p *wire.Packet, known bool) {
	switch {
	case known && p.BTH.Opcode.Class().Has(wire.Response):
		if !hasRequester(q.cfg.Type) || !q.reliable() {
			q.nic.Count.DropOpcode++
			return
		}
		q.handleResponse(now, p)
	case !hasResponder(q.cfg.Type):
		q.nic.Count.DropOpcode++
		return
	case !q.reliable():
		q.handleUC(p, known)
	default:
		q.handleRequest(p, known)
	}
	q.checkInvariants()
	q.rearm()
}
