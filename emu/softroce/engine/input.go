package engine

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Input handles one received datagram. It keeps no reference to d or its payload.
//
// Checks run from the outside in: addresses, ICRC, transport headers. A packet that
// fails a check before its transport handles it is counted and dropped without a
// response.
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
	if d.Dst.Port() != wire.Port || !n.owns(d.Dst.Addr()) && !d.Dst.Addr().IsMulticast() {
		n.Count.DropAddress++
		return
	}
	if !n.icrcOK(d) {
		n.Count.DropICRC++
		return
	}
	n.dispatch(now, d)
}

// icrcOK checks the ICRC. If the link does not show the IP identification, it
// accepts any value and stores the one that matches.
func (n *NIC) icrcOK(d *link.Datagram) bool {
	if n.cfg.ICRC == ICRCOffloaded {
		return true
	}
	if d.Variants&link.MayFragment != 0 {
		return false // the ICRC covers DF, which RoCEv2 requires to be set
	}
	if d.Src != n.rxSrc || d.Dst != n.rxDst {
		n.rxSrc, n.rxDst = d.Src, d.Dst
		n.rx = wire.NewICRC(d.Src, d.Dst)
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

// dispatchToQP checks transport, state, P_Key and path of a packet against its
// destination QP.
func (n *NIC) dispatchToQP(now mono.Time, d *link.Datagram, p *wire.Packet, known bool) {
	q := n.qps.At(p.BTH.DestQP)
	switch {
	case q == nil || d.Dst.Addr().IsMulticast():
		n.Count.DropQPN++
		return
	case p.BTH.Opcode.Transport() != q.transport():
		n.Count.DropQPType++
		return
	case q.state == verbs.QPStateReset: // no P_Key is set yet
		n.Count.DropQPState++
		return
	case !n.pkeyOK(q.expectedPKey(p.BTH.MigReq), p.BTH.PKey):
		n.dropPKey()
		return
	}
	if q.typ == verbs.QPTypeUD {
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

// handlePacket passes a packet to the responder or the completer of the QP.
func (q *QP) handlePacket(now mono.Time, p *wire.Packet, known bool) {
	info, _ := p.BTH.Opcode.Info()
	switch {
	case q.nic.cfg.UCAwaitsAck && q.typ == verbs.QPTypeUC && p.BTH.Opcode.Operation() == wire.OpAcknowledge:
		if r := &q.req; p.BTH.PSN.Sub(r.una) >= 0 && p.BTH.PSN.Sub(r.max) < 0 {
			q.acknowledge(now, p.BTH.PSN, true)
		}
	case known && info.Class.Has(wire.Response):
		if !sends(q.typ) || !q.reliable() {
			q.nic.Count.DropOpcode++
			return
		}
		q.handleResponse(now, p)
	case !receives(q.typ):
		q.nic.Count.DropOpcode++
		return
	default:
		q.handleRequest(p, known)
	}
	q.checkInvariants()
	q.rearm()
}

// pkeyOK compares P_Keys: the low 15 bits must be equal and one of them must have
// full membership.
func (n *NIC) pkeyOK(own, got uint16) bool {
	const full = 0x8000
	return own&^full == got&^full && (own|got)&full != 0
}

func (n *NIC) qkeyOK(own, got uint32) bool { return own == got }

// dropPKey and dropQKey count a packet with a wrong P_Key or Q_Key.
func (n *NIC) dropPKey() {
	n.Count.DropPKey++
	n.badPKeys++
}

func (n *NIC) dropQKey() {
	n.Count.DropQKey++
	n.badQKeys++
}
