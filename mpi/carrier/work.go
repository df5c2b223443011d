package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// task is the purpose of a work request.
type task uint8

const (
	receiving    task = iota + 1
	sending           // a packet
	transferring      // RDMA
)

// work is the context of a posted work request.
type work struct {
	task task
	conn *conn          // nil for datagrams
	dg   *datagrams     // nil for connections
	recv *recvQueue     // of a receive
	buf  *memory.Buffer // of a receive
	pkt  *packet
	part *transferPart
}

// failOutstanding fails all send requests after a local NIC has failed: no completions follow.
// Datagram queue pairs move to the error state, as those of connections have, so that no NIC
// accesses memory for them.
func (c *Carrier) failOutstanding(cause error) {
	for _, r := range c.rails {
		if r.dg != nil {
			r.dg.Fail()
		}
	}
	c.requests.RemoveMatching(func(w *work) bool { return w.task != receiving }, func(w work) {
		if w.task == transferring {
			c.failPart(w.part, cause)
			return
		}
		c.dropPosted(w.pkt)
	})
}

// dropPosted frees a posted packet whose completion does not follow.
func (c *Carrier) dropPosted(pkt *packet) {
	pkt.posted--
	c.drop(pkt)
}

// handleCompletion handles a work completion, and those of the unsignaled requests before it. It ignores
// those of removed requests. A WRID that was never posted is a failure of the NIC.
func (c *Carrier) handleCompletion(r *rail, wc *verbs.WC) {
	found, stale := c.requests.Find(wc.WRID)
	if found == nil {
		if !stale {
			c.failAll(fmt.Errorf("rail %d: completion of WRID %#x, which is not posted", r.Num, wc.WRID))
		}
		return
	}
	w := *found
	if w.task == receiving {
		w.recv.completed(wc, w)
		return
	}
	if w.conn != nil {
		for _, wrid := range w.conn.CompletedBefore(wc.WRID) {
			if earlier, _ := c.requests.Find(wrid); earlier != nil {
				c.requestCompleted(*earlier, &verbs.WC{WRID: wrid, Status: verbs.WCSuccess})
			}
		}
	}
	c.requestCompleted(w, wc)
}

// requestCompleted handles the completion of a send request.
func (c *Carrier) requestCompleted(w work, wc *verbs.WC) {
	c.requests.Remove(wc.WRID)
	if w.task == sending {
		c.sendCompleted(w, wc)
		return
	}
	c.partCompleted(w, wc)
}

// recvQueue is the receives of a connection, an SRQ or the datagrams of a rail.
type recvQueue struct {
	transport.RecvQueue
	c      *Carrier
	conn   *conn // nil if shared
	rail   *rail
	grhLen int // bytes before a packet: the GRH of a datagram
}

// newRecvQueue returns a queue of receives of PacketSize bytes, to be posted with post.
func (r *rail) newRecvQueue(post func([]verbs.RecvWR) (int, error)) recvQueue {
	return recvQueue{RecvQueue: transport.RecvQueue{Post: post, Rail: r.Num, Size: r.c.cfg.PacketSize}, c: r.c, rail: r}
}

// fill posts n receives with buffers of a pool.
func (r *recvQueue) fill(pool *memory.Pool, n int) error {
	for range n {
		buf, err := pool.Take()
		if err != nil {
			return err
		}
		r.Stage(r.c.requests.Add(work{task: receiving, conn: r.conn, recv: r, buf: buf}), buf)
	}
	return r.Flush()
}

// hasBatch reports whether an eighth of all receives, a batch, was used and can be posted in one
// call. A call for each receive would cost as much as a send.
func (r *recvQueue) hasBatch(all int) bool {
	const batches = 8
	return r.Staged() >= max(1, all/batches)
}

// completed handles the completion of a receive: it passes the packet on, and posts the buffer
// again. A flushed receive is not posted again.
func (r *recvQueue) completed(wc *verbs.WC, w work) {
	c := r.c
	if wc.Status != verbs.WCSuccess {
		if r.conn != nil && !r.conn.isConnecting() {
			r.conn.connFailed(statusError{"receive", wc.Status})
		}
		if wc.Status == verbs.WCWRFlushErr {
			c.requests.Remove(wc.WRID)
			w.buf.Release()
			return
		}
		r.Stage(wc.WRID, w.buf) // the message was incomplete: post the receive again
		return
	}
	conn := r.conn
	if conn == nil && r.grhLen == 0 { // the receive of an SRQ: the QPN identifies the connection
		conn = r.rail.conns[wc.QPN]
	}
	r.receive(wc, w.buf, conn)
	r.Stage(wc.WRID, w.buf) // only now: a reply to the packet posts staged receives
	if conn != nil {
		conn.credits.toReturn++
		conn.returnManyCredits()
	}
}

// receive handles a received packet, and discards one that is too long or too short. On a
// connection, a packet with immediate data has no header: the immediate value replaces it.
func (r *recvQueue) receive(wc *verbs.WC, buf *memory.Buffer, conn *conn) {
	c := r.c
	n := int(wc.ByteLen)
	switch {
	case n > len(buf.B) || n < r.grhLen:
		c.stats.Discarded++
	case conn != nil && wc.Flags&verbs.WCWithImm != 0:
		c.receiveHeaderless(buf.B[:n], wc.Imm, conn)
	case r.grhLen > 0:
		r.rail.dg.learnRail(buf.B[r.grhLen:n]) // reply by this rail
		c.receivePacket(buf.B[r.grhLen:n], nil, OverDatagrams)
	default:
		c.receivePacket(buf.B[:n], conn, OverConnection)
	}
}
