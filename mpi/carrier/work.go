package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// task says what a work request is for.
type task uint8

const (
	receiving task = iota + 1
	sending        // a packet
	moving         // data, by RDMA
)

// work is a request that a NIC has. It is known by its index, and by how often that was
// used before: of a queue pair that was closed, late completions may come.
type work struct {
	task task
	life uint32
	conn *conn      // by which it goes; nil if it is one of datagrams
	dg   *datagrams // then
	from *receives
	buf  *buffer // what a receive is filled into
	pkt  *packet
	move *piece
}

// newWork returns the name of a request that does not exist yet.
func (c *Carrier) newWork(w work) (id uint64) {
	if n := len(c.idleWorks); n > 0 {
		i := c.idleWorks[n-1]
		c.idleWorks = c.idleWorks[:n-1]
		w.life = c.works[i].life
		c.works[i] = w
		return uint64(w.life)<<32 | uint64(i)
	}
	c.works = append(c.works, w)
	return uint64(len(c.works) - 1)
}

// endWork says that a request has ended.
func (c *Carrier) endWork(id uint64) {
	i := uint32(id)
	c.works[i] = work{life: c.works[i].life + 1}
	c.idleWorks = append(c.idleWorks, i)
}

// abandon ends all that NICs have, which nobody will hear of any more. They must not reach
// its memory from then on, either.
func (c *Carrier) abandon(cause error) {
	for _, r := range c.rails {
		if r.dg != nil && r.dg.qp != nil {
			_ = r.dg.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) // a NIC that is gone refuses, and does no harm
		}
	}
	for i := range c.works {
		switch w := c.works[i]; w.task {
		case sending:
			c.endWork(uint64(i))
			w.pkt.posted--
			w.pkt.acked = true
			c.dispose(w.pkt)
		case moving:
			c.endWork(uint64(i))
			c.endPiece(w.move, cause)
		}
	}
}

// completed takes a completion.
func (c *Carrier) completed(r *rail, wc *verbs.WC) {
	i := uint32(wc.WRID)
	if int(i) >= len(c.works) {
		c.fault(fmt.Errorf("rail %d: a completion of request %#x, which nobody made", r.num, wc.WRID))
		return
	}
	w := c.works[i]
	if w.life != uint32(wc.WRID>>32) {
		return
	}
	switch w.task {
	case receiving:
		w.from.came(wc, w)
	case sending:
		c.endWork(wc.WRID)
		c.sent(w, wc)
	case moving:
		c.endWork(wc.WRID)
		c.moved(w, wc)
	default:
		c.fault(fmt.Errorf("rail %d: request %#x completed, and was never posted", r.num, wc.WRID))
	}
}

// receives are those that packets from one or many peers are filled into.
type receives struct {
	c    *Carrier
	post func([]verbs.RecvWR) (int, error)
	conn *conn // of which they are; nil if they are shared
	rail *rail
	skip int // what the NIC puts before a packet
	size int
	used []verbs.RecvWR // to be posted again
	sges []verbs.SGE    // of those
}

// fill posts n receives for the first time.
func (r *receives) fill(p *pool, n int) error {
	for range n {
		buf, err := p.take()
		if err != nil {
			return err
		}
		r.use(r.c.newWork(work{task: receiving, conn: r.conn, from: r, buf: buf}), buf)
	}
	return r.flush()
}

// use has a receive be posted at the next flush.
func (r *receives) use(id uint64, buf *buffer) {
	r.sges = append(r.sges, buf.mem.sge(r.rail.num, buf.off, r.skip+r.size))
	r.used = append(r.used, verbs.RecvWR{WRID: id})
}

// flush posts all that were used.
func (r *receives) flush() error {
	if len(r.used) == 0 {
		return nil
	}
	for i := range r.used {
		r.used[i].SGL = r.sges[i : i+1 : i+1]
	}
	n, err := r.post(r.used)
	if err != nil {
		return fmt.Errorf("post receive %d of %d: %w", n, len(r.used), err)
	}
	r.used, r.sges = r.used[:0], r.sges[:0]
	return nil
}

// came takes a receive that was filled, or flushed.
func (r *receives) came(wc *verbs.WC, w work) {
	c := r.c
	if wc.Status != verbs.WCSuccess {
		if r.conn != nil {
			r.conn.broke(statusError{"a receive", wc.Status})
		}
		if wc.Status == verbs.WCWRFlushErr {
			c.endWork(wc.WRID)
			w.buf.giveBack()
			return
		}
		r.use(wc.WRID, w.buf) // of a half message, which does not come any more
		return
	}
	by := r.conn
	if by == nil && r.skip == 0 {
		by = r.rail.conns[wc.QPN]
	}
	r.read(wc, w.buf, by)
	r.use(wc.WRID, w.buf) // only now: a reply to the packet posts the receives that were used
	if by != nil {
		by.owed++
		by.settle()
	}
}

// read takes in the packet in a receive buffer.
func (r *receives) read(wc *verbs.WC, buf *buffer, by *conn) {
	c := r.c
	n := int(wc.ByteLen)
	switch {
	case n > len(buf.b) || n < r.skip:
		c.stats.Discarded++
	case by != nil && wc.Flags&verbs.WCWithImm != 0:
		c.tookNaked(buf.b[:n], wc.Imm, by)
	case r.skip > 0:
		r.rail.dg.came(buf.b[r.skip:n])
		c.took(buf.b[r.skip:n], nil, OverDatagrams)
	default:
		c.took(buf.b[:n], by, OverConnection)
	}
}
