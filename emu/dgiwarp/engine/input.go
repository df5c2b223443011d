package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// Input handles one datagram. It keeps no reference to d or its payload.
//
// What is wrong with a packet is decided from the outside in: address, CRC,
// layout, queue pair, key, and only then what it says.
func (n *NIC) Input(now mono.Time, d *link.Datagram) {
	n.clock = now
	n.Count.Received++
	n.Count.ReceivedBytes += uint64(len(d.Payload))
	dst := d.Dst.Addr().Unmap()
	group := isGroup(dst)
	switch {
	case n.portDown:
		n.Count.DropDown++
		return
	case d.Dst.Port() != n.cfg.Port || !group && !n.owns(dst) || !answerable(d.Src):
		n.Count.DropAddress++
		return
	case !wire.CheckCRC(d.Payload):
		n.Count.DropCRC++
		return
	}
	k := &n.parsed
	if k.Parse(d.Payload) != nil {
		n.Count.DropMalformed++
		return
	}
	switch {
	case group:
		n.takeGroup(d, k)
	case k.Kind == wire.KindUD:
		n.takeUD(d, k)
	default:
		n.takeRD(now, d, k)
	}
}

// answerable reports whether a packet can be of somebody: what is said to come
// from a group would have this NIC answer all of it.
func answerable(src netip.AddrPort) bool {
	a := src.Addr().Unmap()
	return a.IsValid() && !a.IsUnspecified() && !isGroup(a) && src.Port() != 0
}

// find returns the QP that a packet is for, or nil.
func (n *NIC) find(num uint32) *QP {
	if num != 0 {
		return n.qps.At(num)
	}
	if n.count != 1 {
		return nil
	}
	return n.only
}

// takeGroup delivers a copy to each QP that is attached to the group.
func (n *NIC) takeGroup(d *link.Datagram, k *wire.Packet) {
	members := n.mcast[d.Dst.Addr().Unmap()]
	if k.Kind != wire.KindUD || k.DstQP != wire.MulticastQP || len(members) == 0 {
		n.Count.DropQPN++
		return
	}
	n.arrived = sourceOf(d, k.SrcQP)
	for _, q := range members {
		n.toUD(q, k, true)
	}
}

// takeUD delivers an unreliable packet.
func (n *NIC) takeUD(d *link.Datagram, k *wire.Packet) {
	q := n.find(k.DstQP)
	switch {
	case q == nil:
		n.Count.DropQPN++
	case q.reliable:
		n.Count.DropService++
	default:
		n.arrived = sourceOf(d, k.SrcQP)
		n.toUD(q, k, false)
	}
}

// toUD checks what a UD QP asks of every packet.
func (n *NIC) toUD(q *QP, k *wire.Packet, group bool) {
	from, h := &n.arrived, &n.header
	body, err := h.Parse(k.ULPDU)
	switch {
	case !q.receives():
		n.Count.DropState++
	case err == nil && isErrorMessage(h):
		n.takeErrorMessage(q, from, body)
	case k.Key != q.attr.QKey:
		n.Count.DropKey++
	case err != nil:
		n.Count.DropMalformed++
	default:
		q.takeSegment(&inbound{from: from, header: h, body: body, length: len(k.ULPDU), group: group})
	}
}

// isErrorMessage reports whether a segment is for the error queue.
func isErrorMessage(h *ddp.Header) bool {
	return !h.Control.Tagged && h.Control.Opcode == ddp.OpTerminate && h.Untagged.QN == ddp.QueueTerminate
}

// inbound is a segment that has arrived on UD.
type inbound struct {
	from   *source
	header *ddp.Header
	body   []byte // what follows the DDP header
	length int    // of the segment
	group  bool   // came under a group's address: nothing is answered
}
