package carrier

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Idle connections are closed. One end sends a DREQ as its last packet; the other sends a
// DREP when nothing is outstanding. Later messages establish another connection.

// disconnection is the progress of a disconnect.
type disconnection struct {
	mustSendDREP    bool // the peer's DREQ must be answered
	noMorePackets   bool // our last packet was sent, or the peer's has arrived
	awaitsPeerClose bool // the peer may still have to receive our last packet
}

// disconnectIdle sends a DREQ on idle connections. With several rails it does not: the peer handles
// the DREQ only after earlier packets on other rails, and until then would take the end of the
// connection for a failure.
func (c *Carrier) disconnectIdle() {
	if c.cfg.IdleTimeout == 0 || c.Now()-c.conns.lastIdleCheck < c.cfg.IdleTimeout/2 || len(c.rails) > 1 {
		return
	}
	c.conns.lastIdleCheck = c.Now()
	for p := range c.reachedPeers {
		for k := range p.eachConn {
			if !p.busy && k.canDisconnect() && c.Now()-k.lastUsed >= c.cfg.IdleTimeout {
				k.disconnect()
			}
		}
	}
}

// canDisconnect reports whether the connection is idle and has a credit for a DREQ.
func (k *conn) canDisconnect() bool { return k.state == open && !k.AwaitsCompletion() && k.hasCredit() }

// disconnect sends a DREQ.
func (k *conn) disconnect() {
	k.state = closing
	k.c.sendOn(k.peer, k, connDREQ, nil, []byte{byte(k.rail.Num)})
}

// handleDisconnect handles msg, a DREQ or a DREP of the peer. It answers a DREQ by a DREP. If the
// DREQs of both ranks crossed, on iWARP only the lower rank answers, and otherwise neither.
func (k *conn) handleDisconnect(msg kind) {
	d := &k.disconnection
	switch {
	case k.state == open || k.state == accepted:
		k.state, d.mustSendDREP = closing, true
		k.c.markBusy(k.peer)
		k.sendDREP()
	case msg == connDREQ && k.rail.IsIWARP():
		// The DREQs crossed, and neither rank knows whether its own has arrived.
		d.mustSendDREP = k.c.env.Rank < k.peer.rank
		if d.mustSendDREP {
			k.c.markBusy(k.peer)
			k.sendDREP()
		}
	case msg == connDREQ: // the DREQs crossed; the peer may not have received ours yet
		d.noMorePackets = true
		if k.Outstanding() == 0 {
			k.c.endConn(k)
		}
	default: // the peer has received our DREQ, and nothing else was outstanding
		d.noMorePackets = true
		k.c.endConn(k)
	}
}

// sendDREP answers a received DREQ as soon as all send requests of the connection have completed
// and credits allow one more packet. The DREP is the last packet that is sent on the connection.
func (k *conn) sendDREP() {
	if k.state != closing || !k.disconnection.mustSendDREP || k.disconnection.noMorePackets || k.AwaitsCompletion() || !k.canSendAck() {
		return
	}
	// On iWARP a completion means that TCP has the packet: closing now could cut it off.
	k.disconnection.noMorePackets, k.disconnection.awaitsPeerClose = true, k.rail.IsIWARP()
	k.c.sendOn(k.peer, k, connDREP, nil, []byte{byte(k.rail.Num)})
}

// fail moves the queue pair to the error state, which flushes its requests.
func (k *conn) fail() {
	if k.state == failed {
		return
	}
	k.state = failed
	if err := k.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil && !errors.Is(err, verbs.ErrClosed) {
		k.c.failAll(fmt.Errorf("rank %d: %w", k.peer.rank, err))
	}
}

// endConn marks a connection for closing. Its queue pair stays until the polled completions have
// been handled, because some may belong to it. Writes whose notice (the message after the data) was
// not sent are queued again.
func (c *Carrier) endConn(k *conn) {
	if k.ended {
		return
	}
	k.ended = true
	if k.state != failed { // a failed connection stays, or its rail would be tried again
		k.peer.conns[k.rail.Num] = nil
		k.peer.connGeneration[k.rail.Num] = k.cm.generation + 1
		c.stats.ConnectionsClosed++
	}
	c.stats.Connections--
	c.markBusy(k.peer)
	c.conns.ended = append(c.conns.ended, k)
	k.rewriteUnnoticed()
}

// closeEndedConns closes the connections that endConn marked.
func (c *Carrier) closeEndedConns() {
	ended := c.conns.ended
	c.conns.ended = nil
	for _, k := range ended {
		if err := k.close(); err != nil {
			c.failAll(err)
		}
	}
}

// close closes the queue pair and releases the buffers of its requests.
func (k *conn) close() error {
	if k.QP == nil {
		return nil
	}
	delete(k.rail.conns, k.QP.QPN())
	var errs []error
	if k.cm.conn != nil {
		errs = append(errs, transport.IgnoreClosed(k.cm.conn.Disconnect()))
	}
	errs = append(errs, transport.IgnoreClosed(k.QP.Close()))
	k.QP = nil
	c := k.c
	c.requests.RemoveMatching(func(w *work) bool { return w.conn == k }, func(w work) {
		switch w.task {
		case receiving:
			w.buf.Release()
		case sending:
			c.dropPosted(w.pkt)
		}
	})
	return errors.Join(append(errs, k.rail.ReserveCQEs(-k.cqes()))...)
}
