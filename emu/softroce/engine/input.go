package engine

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Input handles one datagram. It keeps no reference to d or its payload.
//
// What is wrong with a packet is decided from the outside in: addresses, then
// integrity, then what the packet says. A packet that fails a check before its
// transport has a say vanishes and is counted; nothing is ever answered to one
// whose ICRC is wrong.
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

// icrcOK checks the ICRC as far as the link lets it be seen, and fills in the
// IP identification where the check reveals it.
func (n *NIC) icrcOK(d *link.Datagram) bool {
	if n.cfg.ICRC == ICRCOffloaded {
		return true
	}
	if d.Variants&link.MayFragment != 0 {
		return false // DF is covered, and set in every sound packet
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

// dispatch parses an intact packet and hands it to its QP.
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

// dispatchToQP checks a packet against the QP it is for.
func (n *NIC) dispatchToQP(now mono.Time, d *link.Datagram, p *wire.Packet, known bool) {
	q := n.qps.At(p.BTH.DestQP)
	switch {
	case q == nil || d.Dst.Addr().IsMulticast():
		n.Count.DropQPN++
		return
	case p.BTH.Opcode.Transport() != q.transport():
		n.Count.DropQPType++
		return
	case q.state == verbs.QPStateReset: // it is in no partition yet
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

// handlePacket hands a packet to the half of the QP it is meant for.
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

// pkeyOK compares partitions: the low fifteen bits must agree and one side must
// be a full member.
func (n *NIC) pkeyOK(own, got uint16) bool {
	const full = 0x8000
	return own&^full == got&^full && (own|got)&full != 0
}

func (n *NIC) qkeyOK(own, got uint32) bool { return own == got }

// dropPKey and dropQKey count a packet that is refused for its key.
func (n *NIC) dropPKey() {
	n.Count.DropPKey++
	n.badPKeys++
}

func (n *NIC) dropQKey() {
	n.Count.DropQKey++
	n.badQKeys++
}
