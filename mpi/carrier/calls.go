package carrier

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// calls are connections made by the connection manager, where there are no datagrams
// to make them with. Its calls wait; so each is a task beside the rank, which tells of
// its end by mail, and the rank decides.
type calls struct {
	rail     *rail
	cm       verbs.CM
	listener verbs.Listener
}

// mailbox is where tasks leave what they have to say.
type mailbox struct {
	mu    sync.Mutex
	items []func()
}

func (m *mailbox) put(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = append(m.items, f)
}

func (m *mailbox) take() (items []func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	items, m.items = m.items, nil
	return items
}

// takeMail does what tasks want.
func (c *Carrier) takeMail() bool {
	items := c.mail.take()
	for _, f := range items {
		f()
	}
	return len(items) > 0
}

// callTimeout is how long a call may take.
const callTimeout = 10 * time.Second

func (r *rail) takeCalls() (err error) {
	l := &calls{rail: r}
	if l.cm, err = r.dev.CM(); err != nil {
		return err
	}
	if l.listener, err = l.cm.Listen(netip.AddrPortFrom(r.gid.Addr(), 0), verbs.PortSpaceTCP, 0); err != nil {
		return err
	}
	r.calls = l
	r.c.lookOut.Store(true)
	r.c.env.Go("take calls", l.answerAll)
	return nil
}

func (l *calls) port() uint16 { return l.listener.Addr().Port() }

func (l *calls) close() error { return l.listener.Close() }

// answerAll hands requests to the rank until the listener is closed.
func (l *calls) answerAll(verbs.Proc) {
	for {
		req, err := l.listener.GetRequest(verbs.Forever)
		if err != nil {
			return
		}
		l.rail.c.mail.put(func() { l.asked(req) })
	}
}

func (l *calls) address(p *peer) netip.AddrPort {
	its := l.rail.card(p)
	return netip.AddrPortFrom(its.gid.Addr(), its.port)
}

// greeting is what a caller says of itself: who it is, how many connections the two have
// had, and what it lets the other send.
func (l *calls) greeting(number uint32) []byte {
	return hand{rail: l.rail.num, qpn: verbs.QPN(l.rail.c.env.Rank), psn: number, credits: l.rail.c.cfg.Receives + reserve}.bytes()
}

func (l *calls) param(number uint32) verbs.ConnParam {
	reads := min(l.rail.attr.MaxQPRdAtomic, l.rail.attr.MaxQPInitAtomic)
	return verbs.ConnParam{PrivateData: l.greeting(number), ResponderResources: reads, InitiatorDepth: reads}
}

// call begins a call to a peer.
func (l *calls) call(p *peer) error {
	c := l.rail.c
	k, err := c.newConn(p, l.rail, asked)
	if err != nil {
		return err
	}
	to, param, qp := l.address(p), l.param(k.number), k.qp
	c.env.Go(fmt.Sprintf("call rank %d", p.rank), func(verbs.Proc) {
		conn, err := l.cm.Connect(qp, to, param, callTimeout)
		c.mail.put(func() { l.called(k, conn, err) })
	})
	return nil
}

// called takes the end of a call.
func (l *calls) called(k *conn, manager verbs.Conn, err error) {
	c, p := l.rail.c, k.peer
	switch {
	case p.lost != nil || k.qp == nil:
		return
	case err == nil:
		k.opened(manager, manager.Param().PrivateData)
	case errors.Is(err, verbs.ErrRejected) && c.env.Control.Gone(p.rank):
		c.lose(p, errGone)
	case errors.Is(err, verbs.ErrRejected):
		// The peer called us at the same time, and its call counts; or it has not seen
		// the end of the last one yet, and is called again.
		p.conns[l.rail.num] = nil
		c.stats.Connections--
		c.isBusy(p)
		if err := k.close(); err != nil {
			c.fault(err)
		}
		if k.waiting != nil {
			l.accept(p, k.waiting)
		}
	default:
		if k.waiting != nil { // by a rail that has failed
			_ = k.waiting.Reject(nil)
		}
		k.broke(err)
	}
}

// asked takes the call of a peer.
func (l *calls) asked(req verbs.ConnRequest) {
	c := l.rail.c
	h, err := c.parseHand(trim(req.Param().PrivateData))
	if err == nil && int(h.qpn) == c.env.Rank {
		l.answerSelf(req, h)
		return
	}
	if err != nil || int(h.qpn) >= len(c.peers) {
		c.stats.Discarded++
		_ = req.Reject(nil) // whoever it is
		return
	}
	p := c.peer(int(h.qpn))
	k := p.conns[l.rail.num]
	if k != nil && k.state != failed && k.state != asked && before(k.number, h.psn) { // the peer has seen its end
		c.end(k)
		k = nil
	}
	switch {
	case p.lost != nil:
		_ = req.Reject(nil)
	case k == nil:
		l.accept(p, req)
	case k.state == asked && c.env.Rank < p.rank: // ours counts
		_ = req.Reject(nil)
	case k.state == asked: // ours will be refused
		k.waiting = req
	default:
		_ = req.Reject(nil)
	}
}

// answerSelf takes the rank's call to itself.
func (l *calls) answerSelf(req verbs.ConnRequest, h hand) {
	c := l.rail.c
	end, err := l.rail.newAnswerer()
	if err != nil {
		c.fault(err)
		return
	}
	param := l.param(h.psn)
	c.env.Go("accept itself", func(verbs.Proc) {
		if _, err := req.Accept(end, param, callTimeout); err != nil {
			c.mail.put(func() { c.fault(err) })
		}
	})
}

func trim(b []byte) []byte { return b[:min(len(b), handLen)] }

// accept takes a call.
func (l *calls) accept(p *peer, req verbs.ConnRequest) {
	c := l.rail.c
	h, _ := c.parseHand(trim(req.Param().PrivateData)) // it was parsed before
	k, err := c.newConn(p, l.rail, answered)
	if err != nil {
		c.lose(p, err)
		return
	}
	k.credits = h.credits
	k.number = h.psn
	qp, param := k.qp, l.param(k.number)
	c.env.Go(fmt.Sprintf("accept rank %d", p.rank), func(verbs.Proc) {
		conn, err := req.Accept(qp, param, callTimeout)
		c.mail.put(func() {
			switch {
			case p.lost != nil || k.qp == nil:
			case err != nil:
				k.broke(err)
			default:
				k.opened(conn, nil)
			}
		})
	})
}

// opened says that a connection stands.
func (k *conn) opened(manager verbs.Conn, greeting []byte) {
	c := k.c
	k.manager = manager
	if greeting != nil {
		h, err := c.parseHand(trim(greeting))
		if err != nil {
			c.lose(k.peer, err)
			return
		}
		k.credits = h.credits
	}
	if k.state == asked || k.state == answered { // else the peer has spoken on it already
		k.state = open
	}
	c.stats.ConnectionsOpened++
	c.isBusy(k.peer)
}
