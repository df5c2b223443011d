package carrier

import (
	"encoding/binary"
	"maps"
	"slices"

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
	destination  []byte // of the data, if local is a bounce buffer
	pendingParts int    // posted and queued
	pendingBytes int    // of a read in packets: not received yet
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
	sent   bool // sent, or in a connection's pendingNotices
}

// due reports whether the transfer has a notice that was neither sent nor put in pendingNotices.
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

// Read starts to read the memory of a peer, by RDMA. The carrier calls Finished of its user (Upper)
// with the owner when the read has ended.
func (c *Carrier) Read(rank int, t wire.Transfer, owner any) {
	c.stats.Reads++
	c.stats.ReadBytes += uint64(t.N)
	into := t.Local.(*memory.Region)
	c.startTransfer(&transfer{op: OpRead, peer: c.peerOrSelf(rank), local: into.Span, n: t.N, remote: t.Remote, owner: owner, opcode: verbs.OpRDMARead, destination: into.Destination()})
}

// Write starts to write to the memory of a peer. The carrier calls Finished of its user (Upper)
// with the owner when the write has ended. The peer receives the message t.Then, if any, after the
// data.
func (c *Carrier) Write(rank int, t wire.Transfer, owner any) {
	c.stats.Writes++
	c.stats.WrittenBytes += uint64(t.N)
	m := &transfer{op: OpWrite, peer: c.peerOrSelf(rank), local: t.Local.(*memory.Region).Span, n: t.N, remote: t.Remote, owner: owner, opcode: verbs.OpRDMAWrite}
	if t.Then != nil {
		m.notice = notice{header: *t.Then, wanted: true}
	}
	c.startTransfer(m)
}

// Atomics reports whether NICs execute atomics on the memory of every peer.
func (c *Carrier) Atomics() bool { return c.caps().Has(verbs.CapAtomics) && c.rdma() }

// rdma reports whether RDMA reaches all peers. Only reliable datagrams have it.
func (c *Carrier) rdma() bool {
	return !c.cfg.NoRDMA && (!c.cfg.Design.hasDatagrams() || c.caps().Has(verbs.CapRD))
}

// FetchAdd adds to an aligned 8-byte word. The owner, a Fetcher, receives the old value.
func (c *Carrier) FetchAdd(rank int, at wire.Memory, add uint64, owner any) {
	c.fetch(rank, at, verbs.OpAtomicFetchAdd, verbs.Atomic{CompareAdd: add}, owner)
}

// CompareSwap replaces an aligned 8-byte word that equals compare. Its Fetcher gets the old value.
func (c *Carrier) CompareSwap(rank int, at wire.Memory, compare, swap uint64, owner any) {
	c.fetch(rank, at, verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: compare, Swap: swap}, owner)
}

// fetch starts an atomic, whose owner receives the old value.
func (c *Carrier) fetch(rank int, at wire.Memory, op verbs.WROpcode, operands verbs.Atomic, owner any) {
	c.stats.Atomics++
	buf, err := c.mem.WordBuffer()
	if err != nil {
		c.finished(owner, OpAtomic, err)
		return
	}
	c.startTransfer(&transfer{op: OpAtomic, peer: c.peer(rank), local: buf.Span, n: 8, remote: at, owner: owner, opcode: op, atomic: operands, result: buf})
}

// peerOrSelf returns a peer; nil for this rank itself.
func (c *Carrier) peerOrSelf(rank int) *peer {
	if rank == c.env.Rank {
		return nil
	}
	return c.peer(rank)
}

// startTransfer splits a transfer over rails and posts or queues its parts, and after the data of a
// write, if needed, a read that shows its placement (needsReadProbe). A transfer within this rank
// is a copy, and one to a peer without RDMA is sent in packets. One to a lost peer fails at once.
func (c *Carrier) startTransfer(m *transfer) {
	p := m.peer
	switch {
	case p == nil:
		c.copyLocal(m)
		return
	case p.lost != nil:
		c.finishTransfer(m, p.lost)
		return
	case (p.shm != nil || !c.rdma()) && m.op != OpAtomic:
		c.sendInPackets(m)
		return
	}
	rails, first := c.railsOf(m)
	share := ((m.n+rails-1)/rails + 7) &^ 7 // bytes of each rail, a multiple of 8
	m.pendingParts++                        // keeps the transfer alive until all parts exist
	for i, off := 0, 0; off < m.n || i == 0; i++ {
		part := &transferPart{transfer: m, off: off, n: min(share, m.n-off), rail: first + i}
		if i == rails-1 {
			part.n = m.n - off
		}
		off += part.n
		c.addPart(p, part)
		if part.n == 0 {
			break
		}
	}
	if m.op == OpWrite && m.n > 0 && c.needsReadProbe(m) {
		c.addReadProbe(p, m)
	}
	if m.pendingParts--; m.pendingParts == 0 {
		c.finishTransfer(m, p.lost)
	}
}

// railsOf returns the number of rails for a transfer, and the first of them. A large transfer uses all
// rails; smaller ones use them in turn. Atomics, whose NICs do not know of each other, and transfers on
// iWARP use the first.
func (c *Carrier) railsOf(m *transfer) (rails, first int) {
	rails = max(1, min(len(c.rails), int(m.remote.Rails)))
	switch {
	case m.op == OpAtomic || c.rails[0].IsIWARP():
		return 1, 0
	case m.n >= c.cfg.StripeThreshold:
		return rails, 0
	}
	first = c.nextTransferRail % rails
	c.nextTransferRail = first + 1
	return 1, first
}

// needsReadProbe reports whether a write needs a read after it: on iWARP without reliable datagrams
// its completion does not show that the data was placed, but the response to the read does. With one
// rail a notice, which follows the data, makes the read unnecessary.
func (c *Carrier) needsReadProbe(m *transfer) bool {
	r := c.rails[0]
	return r.needsPeerAcks() || !m.notice.wanted && r.IsIWARP() && !r.Attr.Caps.Has(verbs.CapRD)
}

// addPart posts or queues a part of a transfer.
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

// addReadProbe adds a one-byte RDMA read, whose response shows that the data before it was placed.
func (c *Carrier) addReadProbe(p *peer, m *transfer) {
	buf, err := c.mem.WordBuffer()
	if err != nil {
		m.err = err
		return
	}
	m.result = buf
	c.addPart(p, &transferPart{transfer: m, n: 1, probeBuf: buf})
}

// copyLocal executes a transfer within the memory of this rank. It also sends the message that
// follows a write, if any.
func (c *Carrier) copyLocal(m *transfer) {
	to, err := c.ownMemory(m.remote.Addr, m.remote.Keys[0], m.n)
	from := m.local.Bytes()[:m.n]
	if m.op == OpRead {
		from, to = to, from
	}
	if err == nil {
		copy(to, from)
		c.mem.ChargeCopy(len(to))
	}
	if err == nil && m.notice.wanted {
		c.Send(c.env.Rank, &m.notice.header, nil, nil)
	}
	m.notice.sent = true // no other function sends it
	c.finishTransfer(m, err)
}

// finishTransfer ends a transfer: it passes a fetched value or err to the owner, and copies read
// data from a bounce buffer to its destination.
func (c *Carrier) finishTransfer(m *transfer, err error) {
	if m.result != nil {
		if f, ok := m.owner.(Fetcher); ok && err == nil {
			f.Fetched(binary.NativeEndian.Uint64(m.result.B))
		}
		m.result.Release()
		m.result = nil
	}
	if m.destination != nil && err == nil {
		copied := copy(m.destination, m.local.Bytes()[:m.n])
		c.mem.ChargeCopy(copied) // the copy takes virtual time
	}
	c.finished(m.owner, m.op, err)
}

// failPart ends a part of a transfer with an error, and with the last part the transfer.
func (c *Carrier) failPart(part *transferPart, cause error) {
	m := part.transfer
	m.err = cause
	if m.pendingParts--; m.pendingParts == 0 {
		c.finishTransfer(m, cause)
	}
}

// failTransfers fails queued transfers, and writes whose notice (the message after the data) was
// not sent. Posted ones end with their completions.
func (c *Carrier) failTransfers(p *peer, cause error) {
	parts, streams, reads := p.queuedParts, p.streams, p.pendingReads
	p.queuedParts, p.streams, p.pendingReads = nil, nil, nil
	for k := range p.eachConn {
		unnoticed := k.pendingNotices
		k.pendingNotices = nil
		for _, m := range unnoticed {
			c.finishTransfer(m, cause)
		}
	}
	for _, part := range parts {
		c.failPart(part, cause)
	}
	for _, s := range streams {
		if s.transfer != nil {
			c.finishTransfer(s.transfer, cause)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(reads)) {
		c.finishTransfer(reads[id], cause)
	}
}
