package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// tryPost posts a part of a transfer if a connection has room. It returns false if the caller must
// queue the part, or if the peer is lost. A part with a probeBuf is a read probe: it shows that the
// data before it was placed. If the part is the whole transfer of a write, tryPost may send the
// notice, the message to the peer after the data, with it.
func (c *Carrier) tryPost(p *peer, part *transferPart) bool {
	if c.cfg.Design == UD {
		return c.tryPostDatagram(p, part)
	}
	k := p.conns[part.rail]
	// On iWARP a part waits for the connection of its rail, elsewhere it takes another one.
	mayWait := k != nil && k.state != failed && k.rail.IsIWARP()
	if !mayWait && (k == nil || k.state != open) {
		k = p.anyOpen()
	}
	if k == nil {
		c.startMissingConns(p)
		return false
	}
	if k.state != open || k.Free() <= reservedWRs { // left to ack-only packets
		return false
	}
	m := part.transfer
	switch {
	case part.probeBuf == nil:
		m.lastConn = k
	case m.lastConn != k: // a read probe shows nothing of data on another connection: write it again
		m.lastConn = k
		if !c.postPart(k, &transferPart{transfer: m, n: m.n}) {
			return false
		}
		m.pendingParts++
	}
	if !c.postPart(k, part) {
		return false
	}
	onePart, oneRail := m.n == part.n, len(c.rails) == 1 // so that the notice arrives after the data
	if m.notice.wanted && onePart && oneRail && len(p.queue) == 0 && k.hasRoom() && len(k.pendingNotices) == 0 {
		m.notice.sent = c.sendOn(p, k, message, &m.notice.header, nil)
	}
	return true
}

// postPart posts a part of a transfer. If the NIC rejects it, postPart returns false, and the peer is
// lost.
func (c *Carrier) postPart(k *conn, part *transferPart) bool {
	id := c.requests.Add(work{task: transferring, conn: k, part: part})
	part.fill(k.Request(), k.SGL(), id, k.rail.Num)
	if err := k.post(); err != nil {
		c.requests.Remove(id)
		c.losePeer(k.peer, err)
		return false
	}
	c.stats.ByRail[k.rail.Num] += uint64(part.n)
	return true
}

// fill fills in the work request of a part; for a read probe, an RDMA read into probeBuf.
func (part *transferPart) fill(wr *verbs.SendWR, sgl []verbs.SGE, id uint64, rail int) {
	m := part.transfer
	opcode, local := m.opcode, m.local.SGE(rail, part.off, part.n)
	// The peer may have fewer rails. Without a key the peer refuses the request.
	key := m.remote.Keys[max(0, min(rail, int(m.remote.Rails)-1))]
	if part.probeBuf != nil {
		opcode, local = verbs.OpRDMARead, part.probeBuf.SGE(rail, 0, part.n)
	}
	*wr = verbs.SendWR{
		WRID: id, Opcode: opcode, Flags: verbs.SendSignaled, Atomic: m.atomic, SGL: append(sgl, local),
		Remote: verbs.Remote{Addr: m.remote.Addr + uint64(part.off), RKey: verbs.RKey(key)},
	}
}

// tryPostDatagram posts a part of a transfer on a rail with reliable datagrams, or on another one
// if that rail has failed for the peer. If the part is the whole transfer of a write, it may send
// the notice, the message to the peer after the data, with it. It returns false if the caller must
// queue the part, or if the peer is lost.
func (c *Carrier) tryPostDatagram(p *peer, part *transferPart) bool {
	d := c.rails[part.rail].dg
	if p.railFailed[part.rail] {
		d = c.datagrams(p)
	}
	if d.Free() == 0 {
		return false
	}
	to, err := d.Destination(p.rank, d.rail.endpoint(p))
	if err != nil {
		return c.retryRefused(p, part, d, err)
	}
	id := c.requests.Add(work{task: transferring, dg: d, part: part})
	part.fill(d.Request(), d.SGL(), id, d.rail.Num)
	d.Request().UD = to
	if err := d.Post(); err != nil {
		c.requests.Remove(id)
		return c.retryRefused(p, part, d, err)
	}
	c.stats.ByRail[d.rail.Num] += uint64(part.n)
	onePart, oneRail := part.transfer.n == part.n, len(c.rails) == 1 // so that the notice arrives after the data
	if m := part.transfer; m.notice.wanted && onePart && oneRail && len(p.queue) == 0 && d.Free() > 0 {
		m.notice.sent = c.sendOn(p, d, message, &m.notice.header, nil)
	}
	return true
}

// retryRefused posts a part, which the NIC of d's rail refused with err, on another rail, and
// reports whether it was posted. If no rail is left, the peer is lost.
func (c *Carrier) retryRefused(p *peer, part *transferPart, d *datagrams, err error) bool {
	if !c.failRail(p, d.rail) {
		c.losePeer(p, err)
		return false
	}
	return c.tryPostDatagram(p, part)
}

// partCompleted handles the completion of a part of a transfer. With the last part it sends the
// notice (the message to the peer after the data of a write), if any, and finishes the transfer. On
// iWARP with one rail, where the data may not be placed yet, it queues the notice in
// pendingNotices, to be sent on the same connection. With several rails, a read probe, the last
// part, has shown that the data was placed.
func (c *Carrier) partCompleted(w work, wc *verbs.WC) {
	part := w.part
	m := part.transfer
	p := m.peer
	lastSucceeded := wc.Status == verbs.WCSuccess && m.pendingParts == 1
	onIWARPWithOneRail := w.conn != nil && w.conn.rail.IsIWARP() && !w.conn.rail.needsPeerAcks()
	deferNotice := lastSucceeded && onIWARPWithOneRail && m.notice.due() && p.lost == nil
	if deferNotice { // before requestCompleted, which may close the connection
		m.pendingParts, m.notice.sent = 0, true
		w.conn.pendingNotices = append(w.conn.pendingNotices, m)
		c.markBusy(p)
	}
	if w.conn != nil {
		w.conn.requestCompleted(wc)
	} else {
		w.dg.CountCompletion()
	}
	if deferNotice {
		return
	}
	if wc.Status != verbs.WCSuccess {
		if p.lost == nil && c.retryOnOtherRail(w, part) {
			return
		}
		m.err = fmt.Errorf("%w", statusError{"RDMA", wc.Status})
		if p.lost == nil {
			c.losePeer(p, m.err)
		}
	}
	if m.pendingParts--; m.pendingParts == 0 {
		if m.notice.due() && p.lost == nil {
			m.notice.sent = true
			c.Send(p.rank, &m.notice.header, nil, nil)
		}
		c.finishTransfer(m, m.err)
	}
}

// A completed write is in the peer's memory, except on iWARP, where the completion means
// only that TCP has it. There the notice must follow on the same connection; a write
// without notice is followed by a read probe.

// sendNotices sends the notices (messages after the data) of completed writes when there is credit
// and no message is queued before them.
func (k *conn) sendNotices() {
	for len(k.pendingNotices) > 0 && len(k.peer.queue) == 0 && k.hasRoom() && k.peer.lost == nil {
		m := k.pendingNotices[0]
		k.pendingNotices = k.pendingNotices[1:]
		if k.c.sendOn(k.peer, k, message, &m.notice.header, nil) {
			k.c.finishTransfer(m, nil)
		} else {
			k.c.finishTransfer(m, k.peer.lost)
		}
	}
}
