package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// task is the purpose of a work request.
type task uint8

const (
	receiving    task = iota + 1
	sending           // a packet
	transferring      // RDMA
)

// work is a posted work request. Its WRID is its index and a generation, which identifies
// late completions of closed queue pairs.
type work struct {
	task       task
	generation uint32
	conn       *conn      // nil for datagrams
	dg         *datagrams // nil for connections
	from       *recvQueue
	buf        *memory.Buffer // of a receive
	pkt        *packet
	part       *transferPart
}

// newWork stores a work request and returns its WRID.
func (c *Carrier) newWork(w work) (id uint64) {
	if n := len(c.idleWorks); n > 0 {
		i := c.idleWorks[n-1]
		c.idleWorks = c.idleWorks[:n-1]
		w.generation = c.works[i].generation
		c.works[i] = w
		return uint64(w.generation)<<32 | uint64(i)
	}
	c.works = append(c.works, w)
	return uint64(len(c.works) - 1)
}

// endWork frees a work request.
func (c *Carrier) endWork(id uint64) {
	i := uint32(id)
	c.works[i] = work{generation: c.works[i].generation + 1}
	c.idleWorks = append(c.idleWorks, i)
}

// failOutstanding fails all send requests after a local NIC has failed: no completions
// follow. Datagram queue pairs move to the error state, which stops access to memory.
func (c *Carrier) failOutstanding(cause error) {
	for _, r := range c.rails {
		if r.dg != nil && r.dg.qp != nil {
			_ = r.dg.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) // fails if the device is gone
		}
	}
	for i := range c.works {
		switch w := c.works[i]; w.task {
		case sending:
			c.endWork(uint64(i))
			w.pkt.posted--
			w.pkt.acked = true
			c.freePacket(w.pkt)
		case transferring:
			c.endWork(uint64(i))
			c.failPart(w.part, cause)
		}
	}
}

// handleCompletion handles a work completion.
func (c *Carrier) handleCompletion(r *rail, wc *verbs.WC) {
	i := uint32(wc.WRID)
	if int(i) >= len(c.works) {
		c.failAll(fmt.Errorf("rail %d: completion with unknown WRID %#x", r.num, wc.WRID))
		return
	}
	w := c.works[i]
	if w.generation != uint32(wc.WRID>>32) {
		return
	}
	switch w.task {
	case receiving:
		w.from.completed(wc, w)
	case sending:
		c.endWork(wc.WRID)
		c.sendCompleted(w, wc)
	case transferring:
		c.endWork(wc.WRID)
		c.partCompleted(w, wc)
	default:
		c.failAll(fmt.Errorf("rail %d: completion of WRID %#x, which is not posted", r.num, wc.WRID))
	}
}

// recvQueue posts the receives of a connection, an SRQ or the datagrams of a rail.
type recvQueue struct {
	c      *Carrier
	post   func([]verbs.RecvWR) (int, error)
	conn   *conn // nil if shared
	rail   *rail
	grhLen int // bytes before a packet: the GRH of a datagram
	size   int
	staged []verbs.RecvWR // to post at the next flush
	sges   []verbs.SGE    // of staged
}

// fill posts n new receives.
func (r *recvQueue) fill(p *memory.Pool, n int) error {
	for range n {
		buf, err := p.Take()
		if err != nil {
			return err
		}
		r.stage(r.c.newWork(work{task: receiving, conn: r.conn, from: r, buf: buf}), buf)
	}
	return r.flush()
}

// stage adds a receive to those that flush posts.
func (r *recvQueue) stage(id uint64, buf *memory.Buffer) {
	r.sges = append(r.sges, buf.SGE(r.rail.num, 0, r.grhLen+r.size))
	r.staged = append(r.staged, verbs.RecvWR{WRID: id})
}

// flush posts the staged receives.
func (r *recvQueue) flush() error {
	if len(r.staged) == 0 {
		return nil
	}
	for i := range r.staged {
		r.staged[i].SGL = r.sges[i : i+1 : i+1]
	}
	n, err := r.post(r.staged)
	if err != nil {
		return fmt.Errorf("post receive %d of %d: %w", n, len(r.staged), err)
	}
	r.staged, r.sges = r.staged[:0], r.sges[:0]
	return nil
}

// completed handles the completion of a receive.
func (r *recvQueue) completed(wc *verbs.WC, w work) {
	c := r.c
	if wc.Status != verbs.WCSuccess {
		if r.conn != nil {
			r.conn.connFailed(statusError{"receive", wc.Status})
		}
		if wc.Status == verbs.WCWRFlushErr {
			c.endWork(wc.WRID)
			w.buf.Release()
			return
		}
		r.stage(wc.WRID, w.buf) // of a message that was cut off
		return
	}
	conn := r.conn
	if conn == nil && r.grhLen == 0 {
		conn = r.rail.conns[wc.QPN]
	}
	r.receive(wc, w.buf, conn)
	r.stage(wc.WRID, w.buf) // only now: a reply to the packet may post the receive
	if conn != nil {
		conn.creditsToReturn++
		conn.returnManyCredits()
	}
}

// receive handles the packet in a receive buffer.
func (r *recvQueue) receive(wc *verbs.WC, buf *memory.Buffer, conn *conn) {
	c := r.c
	n := int(wc.ByteLen)
	switch {
	case n > len(buf.B) || n < r.grhLen:
		c.stats.Discarded++
	case conn != nil && wc.Flags&verbs.WCWithImm != 0:
		c.receiveHeaderless(buf.B[:n], wc.Imm, conn)
	case r.grhLen > 0:
		r.rail.dg.learnRail(buf.B[r.grhLen:n])
		c.receivePacket(buf.B[r.grhLen:n], nil, OverDatagrams)
	default:
		c.receivePacket(buf.B[:n], conn, OverConnection)
	}
}
