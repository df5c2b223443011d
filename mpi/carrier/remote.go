package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// move is data on its way between our memory and a peer's.
type move struct {
	op    Op
	peer  *peer
	mem   *registered // ours
	off   int
	n     int
	at    wire.Memory // the peer's
	then  wire.Header // the word behind a write
	says  bool        // there is one
	said  bool        // it has left
	owner any
	sink  []byte // where what is read belongs, if not where it is read into
	left  int    // pieces that are under way
	by    *conn  // by which it was written last
	err   error

	atomic verbs.Atomic
	opcode verbs.WROpcode
	result *buffer
}

// piece is a part of it, on one rail.
type piece struct {
	move *move
	off  int // in the move
	n    int
	rail int
	// probes is where a byte is read to that shows that a write has arrived; nil in all
	// other pieces.
	probes *buffer
}

// source is our memory of a piece.
func (part *piece) source(rail int) verbs.SGE {
	if part.probes != nil {
		return part.probes.mem.sge(rail, part.probes.off, part.n)
	}
	return part.move.mem.sge(rail, part.move.off+part.off, part.n)
}

// Read brings n bytes of a peer's memory; Finished follows.
func (c *Carrier) Read(rank int, into *Region, n int, from wire.Memory, owner any) {
	c.stats.Reads++
	c.stats.ReadBytes += uint64(n)
	c.start(&move{op: OpRead, peer: c.peerOrSelf(rank), mem: into.mem, off: into.off, n: n, at: from, owner: owner, opcode: verbs.OpRDMARead, sink: into.sink})
}

// Write takes n bytes to a peer's memory, and then a word, if there is one, that
// arrives when they are there; Finished follows.
func (c *Carrier) Write(rank int, from *Region, n int, to wire.Memory, then *wire.Header, owner any) {
	c.stats.Writes++
	c.stats.WrittenBytes += uint64(n)
	m := &move{op: OpWrite, peer: c.peerOrSelf(rank), mem: from.mem, off: from.off, n: n, at: to, owner: owner, opcode: verbs.OpRDMAWrite}
	if then != nil {
		m.then, m.says = *then, true
	}
	c.start(m)
}

// Atomics reports whether NICs can change the memory of any peer atomically.
func (c *Carrier) Atomics() bool {
	return c.caps().Has(verbs.CapAtomics) && c.rdma()
}

// rdma reports whether every peer can be reached by RDMA.
func (c *Carrier) rdma() bool {
	return c.cfg.Design != UD && c.cfg.Design != Hybrid || c.caps().Has(verbs.CapRD)
}

// rdmaTo reports whether data to a peer is moved by the NICs.
func (c *Carrier) rdmaTo(p *peer) bool { return p.beside == nil && c.rdma() }

// FetchAdd adds to an aligned word of eight bytes. The owner is told what it was.
func (c *Carrier) FetchAdd(rank int, at wire.Memory, add uint64, owner Fetcher) {
	c.fetch(rank, at, verbs.OpAtomicFetchAdd, verbs.Atomic{CompareAdd: add}, owner)
}

// CompareSwap replaces an aligned word of eight bytes, if it is what it is compared
// with.
func (c *Carrier) CompareSwap(rank int, at wire.Memory, compare, swap uint64, owner Fetcher) {
	c.fetch(rank, at, verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: compare, Swap: swap}, owner)
}

func (c *Carrier) fetch(rank int, at wire.Memory, op verbs.WROpcode, operands verbs.Atomic, owner Fetcher) {
	c.stats.Atomics++
	buf, err := c.takeWord()
	if err != nil {
		c.finished(owner, OpAtomic, err)
		return
	}
	c.start(&move{op: OpAtomic, peer: c.peer(rank), mem: buf.mem, off: buf.off, n: 8, at: at, owner: owner, opcode: op, atomic: operands, result: buf})
}

// takeWord returns eight bytes for what NICs bring.
func (c *Carrier) takeWord() (*buffer, error) {
	if c.wordPool == nil {
		c.wordPool = c.newPool(SendBuffers, 8, 64)
	}
	return c.wordPool.take()
}

func (c *Carrier) peerOrSelf(rank int) *peer {
	if rank == c.env.Rank {
		return nil
	}
	return c.peer(rank)
}

// start begins a move.
func (c *Carrier) start(m *move) {
	p := m.peer
	switch {
	case p == nil:
		c.copyOwn(m)
		return
	case p.lost != nil:
		c.endMove(m, p.lost)
		return
	case !c.rdmaTo(p) && m.op != OpAtomic:
		c.inPackets(m)
		return
	}
	rails := 1
	if m.n >= c.cfg.StripeThreshold && m.op != OpAtomic && !c.rails[0].limited() {
		rails = min(len(c.rails), int(m.at.Rails))
	}
	share := (m.n/rails + 7) &^ 7
	m.left++ // nothing ends it before all of it has begun
	for i, off := 0, 0; off < m.n || i == 0; i++ {
		part := &piece{move: m, off: off, n: min(share, m.n-off), rail: i % len(c.rails)}
		if i == rails-1 {
			part.n = m.n - off
		}
		off += part.n
		c.add(p, part)
		if part.n == 0 {
			break
		}
	}
	if m.op == OpWrite && m.n > 0 && (!m.says && c.rails[0].limited() && !c.rails[0].attr.Caps.Has(verbs.CapRD) || c.rails[0].forgets()) {
		c.readBehind(p, m)
	}
	if m.left--; m.left == 0 {
		c.endMove(m, p.lost)
	}
}

// add has a piece of a move be carried out.
func (c *Carrier) add(p *peer, part *piece) {
	m := part.move
	m.left++
	switch {
	case len(p.moves) == 0 && c.begin(p, part):
	case p.lost == nil:
		p.moves = append(p.moves, part)
		c.isBusy(p)
	default: // just now: it did not wait yet when all that did was ended
		m.left--
	}
}

// readBehind reads a byte behind a write: when that is answered, the data is there.
func (c *Carrier) readBehind(p *peer, m *move) {
	buf, err := c.takeWord()
	if err != nil {
		m.err = err
		return
	}
	m.result = buf
	c.add(p, &piece{move: m, n: 1, probes: buf})
}

// copyOwn moves data between two places of this rank's own memory.
func (c *Carrier) copyOwn(m *move) {
	there, err := c.within(m.at.Addr, m.at.Keys[0], m.n)
	here := m.mem.buf[m.off : m.off+m.n]
	if err == nil && m.op == OpRead {
		copy(here, there)
	} else if err == nil {
		copy(there, here)
	}
	if err == nil && m.says {
		c.Send(c.env.Rank, &m.then, nil, nil)
	}
	m.said = true
	c.endMove(m, err)
}

// begin posts a piece, if it can be at once. If not, the peer may have been lost over it.
func (c *Carrier) begin(p *peer, part *piece) bool {
	if c.cfg.Design == UD {
		return c.beginByDatagram(p, part)
	}
	k := p.conns[part.rail]
	if k == nil || k.state == failed || k.state != open && !k.rail.limited() {
		k = p.anyOpen()
	}
	if k == nil {
		c.wantConnections(p)
		return false
	}
	if k.state != open || k.free <= 2 {
		return false
	}
	m := part.move
	switch {
	case part.probes == nil:
		m.by = k
	case m.by != k: // it says nothing of what went another way
		m.by = k
		if !c.post(k, &piece{move: m, n: m.n}) {
			return false
		}
		m.left++
	}
	if !c.post(k, part) {
		return false
	}
	if m.says && m.n == part.n && len(p.queue) == 0 && k.free > spare && k.hasCredit() && len(k.behind) == 0 && len(c.rails) == 1 {
		m.said = c.leaveBy(p, k, word, &m.then, nil) // behind the data, on the same way
	}
	return true
}

// post has a NIC carry out a piece. If it refuses, the peer is lost.
func (c *Carrier) post(k *conn, part *piece) bool {
	id := c.newWork(work{task: moving, conn: k, move: part})
	k.wr[0] = part.request(id, k.rail.num)
	k.sges[0] = part.source(k.rail.num)
	k.wr[0].SGL = k.sges[:1]
	if err := k.post(); err != nil {
		c.endWork(id)
		c.lose(k.peer, err)
		return false
	}
	c.stats.ByRail[k.rail.num] += uint64(part.n)
	return true
}

// request is what a NIC is asked for.
func (part *piece) request(id uint64, rail int) verbs.SendWR {
	m := part.move
	opcode := m.opcode
	if part.probes != nil {
		opcode = verbs.OpRDMARead
	}
	return verbs.SendWR{
		WRID: id, Opcode: opcode, Flags: verbs.SendSignaled, Atomic: m.atomic,
		Remote: verbs.Remote{Addr: m.at.Addr + uint64(part.off), RKey: verbs.RKey(m.at.Keys[min(rail, int(m.at.Rails)-1)])},
	}
}

func (c *Carrier) beginByDatagram(p *peer, part *piece) bool {
	d := c.rails[part.rail].dg
	if p.cut[part.rail] {
		d = c.datagrams(p)
	}
	if d.free == 0 {
		return false
	}
	to, err := d.to(p)
	if err != nil {
		return c.refusedPiece(p, part, d, err)
	}
	id := c.newWork(work{task: moving, dg: d, move: part})
	d.wr[0] = part.request(id, d.rail.num)
	d.wr[0].UD = to
	d.sges[0] = part.source(d.rail.num)
	d.wr[0].SGL = d.sges[:1]
	if _, err := d.qp.PostSend(d.wr[:]); err != nil {
		c.endWork(id)
		return c.refusedPiece(p, part, d, err)
	}
	d.free--
	c.stats.ByRail[d.rail.num] += uint64(part.n)
	if m := part.move; m.says && m.n == part.n && len(p.queue) == 0 && d.free > 0 && len(c.rails) == 1 {
		m.said = c.leaveBy(p, d, word, &m.then, nil)
	}
	return true
}

// refusedPiece has a piece that a NIC refuses go by another rail. Without one the peer is
// lost.
func (c *Carrier) refusedPiece(p *peer, part *piece, d *datagrams, err error) bool {
	if !c.cutRail(p, d.rail) {
		c.lose(p, err)
		return false
	}
	return c.beginByDatagram(p, part)
}

// moved takes the completion of a piece.
func (c *Carrier) moved(w work, wc *verbs.WC) {
	part := w.move
	m := part.move
	p := m.peer
	waits := wc.Status == verbs.WCSuccess && w.conn != nil && w.conn.rail.limited() && !w.conn.rail.forgets() && m.left == 1 && m.says && !m.said && p.lost == nil
	if waits { // before the connection is looked at, which may want to close
		m.left, m.said = 0, true
		w.conn.behind = append(w.conn.behind, m)
		c.isBusy(p)
	}
	if w.conn != nil {
		w.conn.done(wc)
	} else {
		w.dg.free++
	}
	if waits {
		return
	}
	if wc.Status != verbs.WCSuccess {
		if p.lost == nil && c.again(w, part) {
			return
		}
		m.err = fmt.Errorf("%w", statusError{"moving data", wc.Status})
		if p.lost == nil {
			c.lose(p, m.err)
		}
	}
	if m.left--; m.left == 0 {
		if m.says && !m.said && p.lost == nil {
			m.said = true
			c.Send(p.rank, &m.then, nil, nil)
		}
		c.endMove(m, m.err)
	}
}

// endMove says that a move has ended.
func (c *Carrier) endMove(m *move, err error) {
	if m.result != nil {
		if f, ok := m.owner.(Fetcher); ok && err == nil {
			f.Fetched(binary.NativeEndian.Uint64(m.result.b))
		}
		m.result.giveBack()
		m.result = nil
	}
	if m.sink != nil && err == nil {
		c.copied(copy(m.sink, m.mem.buf[m.off:m.off+m.n]))
	}
	c.finished(m.owner, m.op, err)
}

// endPiece ends a piece of a move that has failed.
func (c *Carrier) endPiece(part *piece, cause error) {
	m := part.move
	m.err = cause
	if m.left--; m.left == 0 {
		c.endMove(m, cause)
	}
}

// loseMoves ends what waits to be moved; what NICs have ends with their completions.
func (c *Carrier) loseMoves(p *peer, cause error) {
	waiting, streams, wishes := p.moves, p.streams, p.wishes
	p.moves, p.streams, p.wishes = nil, nil, nil
	for _, k := range p.conns {
		if k == nil {
			continue
		}
		behind := k.behind
		k.behind = nil
		for _, m := range behind {
			c.endMove(m, cause)
		}
	}
	for _, part := range waiting {
		c.endPiece(part, cause)
	}
	for _, s := range streams {
		if s.move != nil {
			c.endMove(s.move, cause)
		}
	}
	for _, id := range sortedKeys(wishes) {
		c.endMove(wishes[id], cause)
	}
}

// A write that has completed is in the peer's memory, but for iWARP, where it is on its
// way there: a word about it must go behind it, and where there is no word, something
// small is read behind it.

// sayBehind sends words that wait for credit on the way of their data, and for all that
// was to be said before.
func (k *conn) sayBehind() {
	for len(k.behind) > 0 && len(k.peer.queue) == 0 && k.state == open && k.free > spare && k.hasCredit() && k.peer.lost == nil {
		m := k.behind[0]
		k.behind = k.behind[1:]
		if k.c.leaveBy(k.peer, k, word, &m.then, nil) {
			k.c.endMove(m, nil)
		} else {
			k.c.endMove(m, k.peer.lost)
		}
	}
}

func (p *peer) hasBehind() bool {
	for _, k := range p.conns {
		if k != nil && len(k.behind) > 0 {
			return true
		}
	}
	return false
}
