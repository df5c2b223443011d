package verbcalls

import (
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// listener is a verbs.Listener.
type listener struct {
	verbs.Listener
	handle
	given netip.AddrPort // what Listen was asked for

	mu     sync.Mutex
	served bool // ListenerServesOne
}

// Listen waits for requests, by PortsShared at another port if that is in use.
func (m *manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := m.CM.Listen(addr, space, backlog)
	if err != nil && m.d.q.PortsShared {
		l, err = m.CM.Listen(netip.AddrPortFrom(addr.Addr(), 0), space, backlog)
	}
	if err != nil {
		return nil, err
	}
	return &listener{Listener: l, handle: handle{d: m.d}, given: addr}, nil
}

// Addr is where it listens, by ListenAddrZero where it was asked to.
func (l *listener) Addr() netip.AddrPort {
	if l.d.q.ListenAddrZero {
		return l.given
	}
	return l.Listener.Addr()
}

// GetRequest returns the next request.
func (l *listener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	left := l.d.timeLeft(l.d.cmTime(timeout))
	for {
		r, err := l.Listener.GetRequest(left())
		if err != nil {
			return nil, l.answers(err)
		}
		if l.serves() {
			return &request{ConnRequest: r, d: l.d}, nil
		}
	}
}

// serves reports whether one more request is handed out: by ListenerServesOne the
// first only.
func (l *listener) serves() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.served
	l.served = true
	return first || !l.d.q.ListenerServesOne
}

// Close ends the listening.
func (l *listener) Close() error {
	if l.leftOpen() {
		return nil
	}
	return l.close(l.Listener)
}

// request is a verbs.ConnRequest.
type request struct {
	verbs.ConnRequest
	d *device

	mu       sync.Mutex
	answered bool // AnswersTwice
	conn     verbs.Conn
}

// Remote is the requester's address.
func (r *request) Remote() netip.AddrPort { return r.d.peer(r.ConnRequest.Remote()) }

// Param is what the requester asked for.
func (r *request) Param() verbs.ConnParam { return r.d.told(r.ConnRequest.Param()) }

// Accept connects a queue pair, or by AnswersTwice returns what it did before.
func (r *request) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	if c, done := r.before(); done {
		return c, nil
	}
	r.d.makeFit(qp)
	var c verbs.Conn
	err := r.d.withPrivate(param.PrivateData, func(private []byte) (err error) {
		param.PrivateData = private
		c, err = r.ConnRequest.Accept(its(qp), param, r.d.cmTime(timeout))
		return err
	})
	if err != nil {
		return nil, err
	}
	c = r.d.connected(qp, c)
	r.answer(c)
	return c, nil
}

// Reject refuses the request, or by AnswersTwice says so of an answered one.
func (r *request) Reject(private []byte) error {
	if _, done := r.before(); done {
		return nil
	}
	err := r.d.withPrivate(private, r.ConnRequest.Reject)
	if err == nil {
		r.answer(nil)
	}
	return err
}

// before tells how the request was answered, if that counts.
func (r *request) before() (verbs.Conn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn, r.answered && r.d.q.AnswersTwice
}

// answer notes the answer to the request.
func (r *request) answer(c verbs.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered, r.conn = true, c
}
