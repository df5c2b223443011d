package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// transfer is an RDMA read, write or atomic, or the same in packets.
type transfer struct {
	op           Op
	peer         *peer
	local        memory.Span // local memory
	n            int
	remote       wire.Memory // memory of the peer
	notice       notice
	owner        any
	sink         []byte // destination, if local is a bounce buffer
	pendingParts int    // posted and queued
	lastConn     *conn  // that wrote last
	err          error

	atomic verbs.Atomic
	opcode verbs.WROpcode
	result *memory.Buffer
}

// notice is the message to the peer after a write.
type notice struct {
	header wire.Header
	wanted bool
	sent   bool
}

// due reports whether the notice must be sent.
func (n *notice) due() bool { return n.wanted && !n.sent }

// transferPart is the part of a transfer on one rail.
type transferPart struct {
	transfer *transfer
	off      int // within the transfer
	n        int
	rail     int
	// probeBuf receives the byte of a read probe; nil in other parts.
	probeBuf *memory.Buffer
}

// source returns the local SGE of a part.
func (part *transferPart) source(rail int) verbs.SGE {
	if part.probeBuf != nil {
		return part.probeBuf.SGE(rail, 0, part.n)
	}
	return part.transfer.local.SGE(rail, part.off, part.n)
}

// Read reads n bytes of a peer's memory; Finished follows.
func (c *Carrier) Read(rank int, into *memory.Region, n int, from wire.Memory, owner any) {
	c.stats.Reads++
	c.stats.ReadBytes += uint64(n)
	c.startTransfer(&transfer{op: OpRead, peer: c.peerOrSelf(rank), local: into.Span, n: n, remote: from, owner: owner, opcode: verbs.OpRDMARead, sink: into.Sink()})
}

// Write writes n bytes to a peer's memory; Finished follows. If then is not nil, the peer
// receives that message after the data.
func (c *Carrier) Write(rank int, from *memory.Region, n int, to wire.Memory, then *wire.Header, owner any) {
	c.stats.Writes++
	c.stats.WrittenBytes += uint64(n)
	m := &transfer{op: OpWrite, peer: c.peerOrSelf(rank), local: from.Span, n: n, remote: to, owner: owner, opcode: verbs.OpRDMAWrite}
	if then != nil {
		m.notice = notice{header: *then, wanted: true}
	}
	c.startTransfer(m)
}

// Atomics reports whether NICs execute atomics on the memory of every peer.
func (c *Carrier) Atomics() bool {
	return c.caps().Has(verbs.CapAtomics) && c.rdma()
}

// rdma reports whether the transports to all peers have RDMA.
func (c *Carrier) rdma() bool {
	return c.cfg.Design != UD && c.cfg.Design != Hybrid || c.caps().Has(verbs.CapRD)
}

// rdmaTo reports whether data to a peer is moved by RDMA.
func (c *Carrier) rdmaTo(p *peer) bool { return p.shm == nil && c.rdma() }

// FetchAdd adds to an aligned 8-byte word. The owner receives the old value.
func (c *Carrier) FetchAdd(rank int, at wire.Memory, add uint64, owner Fetcher) {
	c.fetch(rank, at, verbs.OpAtomicFetchAdd, verbs.Atomic{CompareAdd: add}, owner)
}

// CompareSwap replaces an aligned 8-byte word if it equals compare. The owner receives the
// old value.
func (c *Carrier) CompareSwap(rank int, at wire.Memory, compare, swap uint64, owner Fetcher) {
	c.fetch(rank, at, verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: compare, Swap: swap}, owner)
}

func (c *Carrier) fetch(rank int, at wire.Memory, op verbs.WROpcode, operands verbs.Atomic, owner Fetcher) {
	c.stats.Atomics++
	buf, err := c.mem.WordBuffer()
	if err != nil {
		c.finished(owner, OpAtomic, err)
		return
	}
	c.startTransfer(&transfer{op: OpAtomic, peer: c.peer(rank), local: buf.Span, n: 8, remote: at, owner: owner, opcode: op, atomic: operands, result: buf})
}

func (c *Carrier) peerOrSelf(rank int) *peer {
	if rank == c.env.Rank {
		return nil
	}
	return c.peer(rank)
}

// startTransfer splits a transfer over rails and posts or queues its parts.
func (c *Carrier) startTransfer(m *transfer) {
	p := m.peer
	switch {
	case p == nil:
		c.copyLocal(m)
		return
	case p.lost != nil:
		c.finishTransfer(m, p.lost)
		return
	case !c.rdmaTo(p) && m.op != OpAtomic:
		c.sendInPackets(m)
		return
	}
	rails := 1
	if m.n >= c.cfg.StripeThreshold && m.op != OpAtomic && !c.rails[0].LacksRNR() {
		rails = min(len(c.rails), int(m.remote.Rails))
	}
	share := (m.n/rails + 7) &^ 7
	m.pendingParts++ // keeps the transfer alive until all parts exist
	for i, off := 0, 0; off < m.n || i == 0; i++ {
		part := &transferPart{transfer: m, off: off, n: min(share, m.n-off), rail: i % len(c.rails)}
		if i == rails-1 {
			part.n = m.n - off
		}
		off += part.n
		c.addPart(p, part)
		if part.n == 0 {
			break
		}
	}
	if m.op == OpWrite && m.n > 0 && (!m.notice.wanted && c.rails[0].LacksRNR() && !c.rails[0].Attr.Caps.Has(verbs.CapRD) || c.rails[0].completesBeforeDelivery()) {
		c.addReadProbe(p, m)
	}
	if m.pendingParts--; m.pendingParts == 0 {
		c.finishTransfer(m, p.lost)
	}
}

// addPart posts or queues a part.
func (c *Carrier) addPart(p *peer, part *transferPart) {
	m := part.transfer
	m.pendingParts++
	switch {
	case len(p.queuedParts) == 0 && c.tryPost(p, part):
	case p.lost == nil:
		p.queuedParts = append(p.queuedParts, part)
		c.markBusy(p)
	default: // tryPost lost the peer
		m.pendingParts--
	}
}

// addReadProbe adds an RDMA read of one byte. Its response shows that the data before it
// was placed.
func (c *Carrier) addReadProbe(p *peer, m *transfer) {
	buf, err := c.mem.WordBuffer()
	if err != nil {
		m.err = err
		return
	}
	m.result = buf
	c.addPart(p, &transferPart{transfer: m, n: 1, probeBuf: buf})
}

// copyLocal executes a transfer within the memory of this rank.
func (c *Carrier) copyLocal(m *transfer) {
	there, err := c.ownMemory(m.remote.Addr, m.remote.Keys[0], m.n)
	here := m.local.Bytes()[:m.n]
	if err == nil && m.op == OpRead {
		copy(here, there)
	} else if err == nil {
		copy(there, here)
	}
	if err == nil && m.notice.wanted {
		c.Send(c.env.Rank, &m.notice.header, nil, nil)
	}
	m.notice.sent = true
	c.finishTransfer(m, err)
}

// tryPost posts a part if that is possible now. On failure the peer may be lost.
func (c *Carrier) tryPost(p *peer, part *transferPart) bool {
	if c.cfg.Design == UD {
		return c.tryPostDatagram(p, part)
	}
	k := p.conns[part.rail]
	if k == nil || k.state == failed || k.state != open && !k.rail.LacksRNR() {
		k = p.anyOpen()
	}
	if k == nil {
		c.wantConnections(p)
		return false
	}
	if k.state != open || k.Free() <= 2 {
		return false
	}
	m := part.transfer
	switch {
	case part.probeBuf == nil:
		m.lastConn = k
	case m.lastConn != k: // a probe says nothing of data on another connection: write it again
		m.lastConn = k
		if !c.postPart(k, &transferPart{transfer: m, n: m.n}) {
			return false
		}
		m.pendingParts++
	}
	if !c.postPart(k, part) {
		return false
	}
	if m.notice.wanted && m.n == part.n && len(p.queue) == 0 && k.hasRoom() && len(k.pendingNotices) == 0 && len(c.rails) == 1 {
		m.notice.sent = c.sendOn(p, k, message, &m.notice.header, nil) // ordered after the data
	}
	return true
}

// postPart posts a part. If the NIC rejects it, the peer is lost.
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

// fill fills in the work request of a part.
func (part *transferPart) fill(wr *verbs.SendWR, sgl []verbs.SGE, id uint64, rail int) {
	m := part.transfer
	opcode := m.opcode
	if part.probeBuf != nil {
		opcode = verbs.OpRDMARead
	}
	*wr = verbs.SendWR{
		WRID: id, Opcode: opcode, Flags: verbs.SendSignaled, Atomic: m.atomic, SGL: append(sgl, part.source(rail)),
		Remote: verbs.Remote{Addr: m.remote.Addr + uint64(part.off), RKey: verbs.RKey(m.remote.Keys[min(rail, int(m.remote.Rails)-1)])},
	}
}

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
	if m := part.transfer; m.notice.wanted && m.n == part.n && len(p.queue) == 0 && d.Free() > 0 && len(c.rails) == 1 {
		m.notice.sent = c.sendOn(p, d, message, &m.notice.header, nil)
	}
	return true
}

// retryRefused posts a part that the NIC rejected on another rail. Without one the peer is
// lost.
func (c *Carrier) retryRefused(p *peer, part *transferPart, d *datagrams, err error) bool {
	if !c.failRail(p, d.rail) {
		c.losePeer(p, err)
		return false
	}
	return c.tryPostDatagram(p, part)
}

// partCompleted handles the completion of a part.
func (c *Carrier) partCompleted(w work, wc *verbs.WC) {
	part := w.part
	m := part.transfer
	p := m.peer
	deferNotice := wc.Status == verbs.WCSuccess && w.conn != nil && w.conn.rail.LacksRNR() && !w.conn.rail.completesBeforeDelivery() && m.pendingParts == 1 && m.notice.due() && p.lost == nil
	if deferNotice { // before requestCompleted, which may close the connection
		m.pendingParts, m.notice.sent = 0, true
		w.conn.pendingNotices = append(w.conn.pendingNotices, m)
		c.markBusy(p)
	}
	if w.conn != nil {
		w.conn.requestCompleted(wc)
	} else {
		w.dg.Completed()
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

// finishTransfer passes the result of a transfer to its owner.
func (c *Carrier) finishTransfer(m *transfer, err error) {
	if m.result != nil {
		if f, ok := m.owner.(Fetcher); ok && err == nil {
			f.Fetched(binary.NativeEndian.Uint64(m.result.B))
		}
		m.result.Release()
		m.result = nil
	}
	if m.sink != nil && err == nil {
		c.env.Costs.ChargeCopy(copy(m.sink, m.local.Bytes()[:m.n]))
	}
	c.finished(m.owner, m.op, err)
}

// failPart ends a part with an error.
func (c *Carrier) failPart(part *transferPart, cause error) {
	m := part.transfer
	m.err = cause
	if m.pendingParts--; m.pendingParts == 0 {
		c.finishTransfer(m, cause)
	}
}

// failTransfers fails queued transfers. Posted ones end with their completions.
func (c *Carrier) failTransfers(p *peer, cause error) {
	waiting, streams, wishes := p.queuedParts, p.streams, p.pendingReads
	p.queuedParts, p.streams, p.pendingReads = nil, nil, nil
	for _, k := range p.conns {
		if k == nil {
			continue
		}
		behind := k.pendingNotices
		k.pendingNotices = nil
		for _, m := range behind {
			c.finishTransfer(m, cause)
		}
	}
	for _, part := range waiting {
		c.failPart(part, cause)
	}
	for _, s := range streams {
		if s.transfer != nil {
			c.finishTransfer(s.transfer, cause)
		}
	}
	for _, id := range sortedKeys(wishes) {
		c.finishTransfer(wishes[id], cause)
	}
}

// A completed write is in the peer's memory, except on iWARP, where the completion means
// only that TCP has it. There the notice must follow on the same connection; a write
// without notice is followed by a read probe.

// sendNotices sends the notices of completed writes when there is credit and no message is
// queued before them.
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

func (p *peer) hasPendingNotices() bool {
	for _, k := range p.conns {
		if k != nil && len(k.pendingNotices) > 0 {
			return true
		}
	}
	return false
}
