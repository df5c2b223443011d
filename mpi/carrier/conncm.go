package carrier

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// connManager establishes connections with the connection manager, on rails without
// datagrams. Its calls block, therefore each runs in a task that reports its result through
// the callback queue.
type connManager struct {
	rail     *rail
	cm       verbs.CM
	listener verbs.Listener
}

// callbackQueue holds functions that tasks want the rank to run.
type callbackQueue struct {
	mu    sync.Mutex
	items []func()
}

// put queues f, which the next Progress calls. Any goroutine may call put.
func (m *callbackQueue) put(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = append(m.items, f)
}

// run runs the queued functions, and reports whether there were any.
func (m *callbackQueue) run() bool {
	m.mu.Lock()
	items := m.items
	m.items = nil
	m.mu.Unlock()
	for _, f := range items {
		f()
	}
	return len(items) > 0
}

const connectTimeout = 10 * time.Second

// listenCM listens for the connection requests of peers, on a rail without datagrams.
func (r *rail) listenCM() (err error) {
	l := &connManager{rail: r}
	if l.cm, err = r.Dev.CM(); err != nil {
		return err
	}
	const defaultBacklog = 0
	if l.listener, err = l.cm.Listen(netip.AddrPortFrom(r.GID.Addr(), 0), verbs.PortSpaceTCP, defaultBacklog); err != nil {
		return err
	}
	r.cm = l
	r.c.waiter.mustPoll.Store(true) // callbacks raise no completion event
	r.c.env.Go("accept connections", func(verbs.Proc) {
		for {
			req, err := l.listener.GetRequest(verbs.Forever)
			if err != nil {
				return // the listener is closed
			}
			r.c.conns.callbacks.put(func() { l.handleRequest(req) })
		}
	})
	return nil
}

// param returns the parameters of a connection request or reply. Its private data is a connInfo
// with this rank in place of the QPN, and the generation, the number of earlier connections with
// the peer, in place of the PSN: the CM exchanges QPNs and PSNs itself.
func (l *connManager) param(generation uint32) verbs.ConnParam {
	c, reads := l.rail.c, l.rail.MaxReads()
	info := connInfo{rail: l.rail.Num, qpn: verbs.QPN(c.env.Rank), psn: generation, credits: c.cfg.Receives + reservedCredits}
	return verbs.ConnParam{PrivateData: info.bytes(), ResponderResources: reads, InitiatorDepth: reads}
}

// connect sends a connection request to a peer.
func (l *connManager) connect(p *peer) error {
	c := l.rail.c
	k, err := c.newConn(p, l.rail, requested)
	if err != nil {
		return err
	}
	remote := l.rail.endpoint(p)
	to, param, qp := netip.AddrPortFrom(remote.GID.Addr(), remote.Port), l.param(k.cm.generation), k.QP
	c.env.Go(fmt.Sprintf("connect to rank %d", p.rank), func(verbs.Proc) {
		conn, err := l.cm.Connect(qp, to, param, connectTimeout)
		c.conns.callbacks.put(func() { l.connectDone(k, conn, err) })
	})
	return nil
}

// connectDone handles the result of a connection request: the connection is established, closed and
// tried again later after a rejection, or failed.
func (l *connManager) connectDone(k *conn, cmConn verbs.Conn, err error) {
	c, p := l.rail.c, k.peer
	switch {
	case p.lost != nil || k.QP == nil: // closed meanwhile
		return
	case err == nil:
		k.established(cmConn, cmConn.Param().PrivateData)
	case errors.Is(err, verbs.ErrRejected) && c.env.Control.Gone(p.rank):
		c.losePeer(p, errGone)
	case errors.Is(err, verbs.ErrRejected):
		// The requests of both ranks crossed and the peer's wins, or the peer has not yet
		// noticed the end of the previous connection and this rank tries again.
		p.conns[l.rail.Num] = nil
		c.stats.Connections--
		c.markBusy(p)
		if err := k.close(); err != nil {
			c.failAll(err)
		}
		if k.cm.pendingRequest != nil {
			l.accept(p, k.cm.pendingRequest)
		}
	default:
		if k.cm.pendingRequest != nil { // on a rail that has failed
			_ = k.cm.pendingRequest.Reject(nil)
		}
		k.connFailed(err)
	}
}

// handleRequest accepts or rejects the connection request of a peer.
func (l *connManager) handleRequest(req verbs.ConnRequest) {
	c := l.rail.c
	from, generation, _, err := c.parsePrivateData(req.Param().PrivateData)
	if err == nil && from == c.env.Rank {
		l.acceptSelf(req, generation)
		return
	}
	if err != nil || from >= len(c.peers) {
		c.stats.Discarded++
		_ = req.Reject(nil) // the sender is not a rank of this job
		return
	}
	p := c.peer(from)
	k := p.conns[l.rail.Num]
	if k != nil && k.state != failed && k.state != requested && seqBefore(k.cm.generation, generation) { // the peer has ended k
		c.endConn(k)
		k = nil
	}
	switch {
	case p.lost == nil && k == nil:
		l.accept(p, req)
	case p.lost == nil && k.state == requested && p.rank < c.env.Rank: // the peer rejects our request
		k.cm.pendingRequest = req
	default: // the peer is lost, our request wins, or there is a connection
		_ = req.Reject(nil)
	}
}

// acceptSelf accepts the connection of the rank to itself, for atomics on its own memory.
func (l *connManager) acceptSelf(req verbs.ConnRequest, generation uint32) {
	c := l.rail.c
	end, err := l.rail.newLoopbackQP()
	if err != nil {
		c.failAll(err)
		return
	}
	param := l.param(generation)
	c.env.Go("accept own connection", func(verbs.Proc) {
		if _, err := req.Accept(end, param, connectTimeout); err != nil {
			c.conns.callbacks.put(func() { c.failAll(err) })
		}
	})
}

// parsePrivateData parses the private data of a connection request or of its acceptance, which a
// NIC may have padded: a connInfo with the rank of the sender as QPN and its generation as PSN.
func (c *Carrier) parsePrivateData(b []byte) (from int, generation uint32, credits int, err error) {
	h, err := c.parseConnInfo(b[:min(len(b), connInfoLen)])
	return int(h.qpn), h.psn, h.credits, err
}

// accept accepts the connection request of a peer. The verbs call blocks, so a task of its own
// makes it, and passes the result to the carrier as a callback.
func (l *connManager) accept(p *peer, req verbs.ConnRequest) {
	c := l.rail.c
	_, generation, credits, _ := c.parsePrivateData(req.Param().PrivateData) // handleRequest has checked it
	k, err := c.newConn(p, l.rail, accepted)
	if err != nil {
		c.losePeer(p, err)
		return
	}
	k.credits.available = credits
	k.cm.generation = generation
	qp, param := k.QP, l.param(k.cm.generation)
	c.env.Go(fmt.Sprintf("accept rank %d", p.rank), func(verbs.Proc) {
		conn, err := req.Accept(qp, param, connectTimeout)
		c.conns.callbacks.put(func() {
			switch {
			case p.lost != nil || k.QP == nil: // closed meanwhile
			case err != nil:
				k.connFailed(err)
			default:
				k.established(conn, nil)
			}
		})
	})
}

// isConnecting reports whether a call of the connection manager is to establish the connection. Its
// result decides: siw flushes the receives of a connection whose request was rejected, perhaps because
// that of the peer wins, and the completions may precede the result.
func (k *conn) isConnecting() bool {
	return k.rail.cm != nil && k.cm.conn == nil && (k.state == requested || k.state == accepted)
}

// established opens a connection. privateData is that of the accept; nil at the passive end.
func (k *conn) established(cmConn verbs.Conn, privateData []byte) {
	c := k.c
	k.cm.conn = cmConn
	if privateData != nil {
		_, _, credits, err := c.parsePrivateData(privateData)
		if err != nil {
			c.losePeer(k.peer, err)
			return
		}
		k.credits.available = credits
	}
	if k.state == requested || k.state == accepted { // else a packet of the peer has opened it
		k.state = open
	}
	c.stats.ConnectionsOpened++
	c.markBusy(k.peer)
}
