package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Input handles one datagram. It keeps no reference to d or its payload. The checks go from
// the outer header to the inner: address, CRC, layout, queue pair, key, content.
func (n *NIC) Input(now mono.Time, d *link.Datagram) {
	n.clock = now
	n.Count.Received++
	n.Count.ReceivedBytes += uint64(len(d.Payload))
	dst := d.Dst.Addr().Unmap()
	group := isGroup(dst)
	switch {
	case n.PortDown:
		n.Count.DropDown++
		return
	case d.Dst.Port() != n.cfg.Port || !group && !n.gids.owns(dst) || !validSource(d.Src):
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
		n.receiveGroup(d, k)
	case k.Kind == wire.KindUD:
		n.receiveUD(d, k)
	default:
		n.receiveRD(now, d, k)
	}
}

// validSource reports whether src can be answered: it must be a unicast address with a port.
func validSource(src netip.AddrPort) bool {
	a := src.Addr().Unmap()
	return a.IsValid() && !a.IsUnspecified() && !isGroup(a) && src.Port() != 0
}

// find returns the QP with a number, or nil. In a packet, number 0 means the only QP of the NIC;
// there is none if it has several.
func (n *NIC) find(num uint32) (only *QP) {
	if num != 0 {
		return n.qps.At(num)
	}
	for q := range n.qps.All() {
		if only != nil {
			return nil
		}
		only = q
	}
	return only
}

const multicast, unicast = true, false // values of the parameter group of toUD

// receiveGroup delivers a multicast packet to each QP that is attached to the group.
func (n *NIC) receiveGroup(d *link.Datagram, k *wire.Packet) {
	members := n.mcast[d.Dst.Addr().Unmap()]
	if k.Kind != wire.KindUD || k.DstQP != wire.MulticastQP || len(members) == 0 {
		n.Count.DropQPN++
		return
	}
	n.lastSource = sourceOf(d, k.SrcQP)
	for _, q := range members {
		n.toUD(q, k, multicast)
	}
}

// receiveUD delivers a UD packet.
func (n *NIC) receiveUD(d *link.Datagram, k *wire.Packet) {
	q := n.find(k.DstQP)
	switch {
	case q == nil:
		n.Count.DropQPN++
	case q.Reliable:
		n.Count.DropService++
	default:
		n.lastSource = sourceOf(d, k.SrcQP)
		n.toUD(q, k, unicast)
	}
}

// toUD checks a packet for a UD QP, and passes its segment to the QP. The key of an error message
// is not checked: it is that of the packet that the error is about.
func (n *NIC) toUD(q *QP, k *wire.Packet, group bool) {
	from, h := &n.lastSource, &n.header
	body, err := h.Parse(k.ULPDU)
	switch {
	case !q.mayReceive():
		n.Count.DropState++
	case err == nil && isErrorMessage(h):
		n.receiveErrorMessage(q, from, body)
	case k.Key != q.attr.QKey:
		n.Count.DropKey++
	case err != nil:
		n.Count.DropMalformed++
	default:
		q.receiveSegment(&inbound{from: from, header: h, body: body, length: len(k.ULPDU), group: group})
	}
}

// isErrorMessage reports whether a segment is an error message.
func isErrorMessage(h *ddp.Header) bool {
	return !h.Control.Tagged && h.Control.Opcode == ddp.OpTerminate && h.Untagged.QN == ddp.QueueTerminate
}

// inbound is a segment received by UD.
type inbound struct {
	from   *source
	header *ddp.Header
	body   []byte // after the DDP header
	length int    // of the segment
	group  bool   // multicast: no error message is sent
}
