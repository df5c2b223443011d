package engine

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// SendMAD queues a MAD. It reports false if the queue is full; senders of MADs retransmit.
func (n *NIC) SendMAD(m MAD) bool {
	if len(n.madsOut) >= n.cfg.Limits.MADsQueue {
		n.Count.DropQueue++
		return false
	}
	n.madsOut = append(n.madsOut, m)
	return true
}

// MADs returns the number of received management datagrams in the queue.
func (n *NIC) MADs() int { return len(n.madsIn) }

// NextMAD removes and returns the oldest received management datagram.
func (n *NIC) NextMAD() (MAD, bool) { return nic.PopFront(&n.madsIn) }

// handleMAD receives a MAD with any P_Key of the port; known is false for undefined opcodes. A
// multicast MAD has no counter of its own: it counts as one of a wrong length.
func (n *NIC) handleMAD(d *link.Datagram, p *wire.Packet, known bool) {
	switch {
	case !known || p.BTH.Opcode != wire.MakeOpcode(wire.TransportUD, wire.OpSendOnly):
		n.Count.DropOpcode++
		return
	case !slices.ContainsFunc(n.cfg.PKeys, func(own uint16) bool { return n.pkeyOK(own, p.BTH.PKey) }):
		n.dropPKey()
		return
	case !n.qkeyOK(gsiQKey, p.DETH.QKey):
		n.dropQKey()
		return
	case len(p.Payload) != MADLen || d.Dst.Addr().IsMulticast():
		n.Count.DropLength++
		return
	case len(n.madsIn) >= n.cfg.Limits.MADsQueue:
		n.Count.DropQueue++
		return
	}
	n.Count.MADsReceived++
	n.madsIn = append(n.madsIn, MAD{
		Local: d.Dst.Addr(), Remote: d.Src.Addr(), PKey: p.BTH.PKey, Data: [MADLen]byte(p.Payload),
	})
}

// outputMADsAndCNPs fills ds with packets that no application's QP sends: MADs, and CNPs to senders
// of UD datagrams. All datagrams may share one buffer: shareBuffer passes the rest of it on.
func (n *NIC) outputMADsAndCNPs(ds []link.Datagram) int {
	filled := 0
	for filled < len(ds) && len(n.madsOut) > 0 {
		m, _ := nic.PopFront(&n.madsOut)
		if !n.owns(m.Local) {
			continue // the address was removed
		}
		n.buildMAD(&ds[filled], &m)
		filled++
		n.shareBuffer(ds, filled)
	}
	for filled < len(ds) && len(n.cnps) > 0 {
		c, _ := nic.PopFront(&n.cnps)
		if !n.owns(c.path.src.Addr()) {
			continue
		}
		n.buildCNP(&ds[filled], &c.path, c.pkey, c.qpn)
		filled++
		n.shareBuffer(ds, filled)
	}
	return filled
}

// buildMAD makes d a packet from QP1 to QP1 with a MAD.
func (n *NIC) buildMAD(d *link.Datagram, m *MAD) {
	p := &n.scratch
	p.BTH = wire.BTH{
		Opcode: wire.MakeOpcode(wire.TransportUD, wire.OpSendOnly), PKey: m.PKey, DestQP: gsiQPN,
		PSN: n.madPSN,
	}
	p.DETH = wire.DETH{QKey: gsiQKey, SrcQP: gsiQPN}
	pa := n.cfg.defaultPath(m.Local, m.Remote)
	copy(writeHeaders(d, &pa, p, MADLen), m.Data[:])
	n.seal(d, &pa.icrc)
	n.madPSN = n.madPSN.Next()
	n.Count.MADsSent++
}
