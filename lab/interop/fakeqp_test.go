package interop

import (
	"bytes"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// recvQueue is a queue of receives, and of the messages that wait for one.
type recvQueue struct {
	posted  []verbs.RecvWR
	waiting []func(verbs.RecvWR)
}

func (q *recvQueue) post(wrs []verbs.RecvWR) {
	q.posted = append(q.posted, wrs...)
	for len(q.posted) > 0 && len(q.waiting) > 0 {
		q.waiting[0](q.posted[0])
		q.posted, q.waiting = q.posted[1:], q.waiting[1:]
	}
}

func (q *recvQueue) deliver(f func(verbs.RecvWR)) {
	q.waiting = append(q.waiting, f)
	q.post(nil)
}

func (d *fakeDevice) CreateSRQ(verbs.SRQInit) (verbs.SRQ, error) {
	return &fakeSRQ{d: d, closerFunc: d.countOpen()}, nil
}

type fakeSRQ struct {
	verbs.SRQ
	d *fakeDevice
	recvQueue
	closerFunc
}

func (s *fakeSRQ) Close() error { return s.closerFunc() }

func (s *fakeSRQ) PostRecv(wrs []verbs.RecvWR) (int, error) {
	s.d.f.mu.Lock()
	defer s.d.f.mu.Unlock()
	s.post(wrs)
	return len(wrs), nil
}

func (d *fakeDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	q := &fakeQP{d: d, init: init, closerFunc: d.countOpen()}
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.f.lastQPN++
	q.qpn = d.f.lastQPN
	q.rq = &q.own
	if srq, ok := init.SRQ.(*fakeSRQ); ok {
		q.rq = &srq.recvQueue
	}
	d.qps[q.qpn] = q
	return q, nil
}

type fakeQP struct {
	verbs.QP
	d    *fakeDevice
	init verbs.QPInit
	qpn  verbs.QPN
	attr verbs.QPAttr
	own  recvQueue
	rq   *recvQueue
	closerFunc
}

func (q *fakeQP) Close() error       { return q.closerFunc() }
func (q *fakeQP) QPN() verbs.QPN     { return q.qpn }
func (q *fakeQP) Type() verbs.QPType { return q.init.Type }

func (q *fakeQP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.d.f.mu.Lock()
	defer q.d.f.mu.Unlock()
	q.attr.State = attr.State
	if mask&verbs.QPAttrQKey != 0 {
		q.attr.QKey = attr.QKey
	}
	if mask&verbs.QPAttrDestQPN != 0 {
		q.attr.DestQPN, q.attr.AH = attr.DestQPN, attr.AH
	}
	return nil
}

func (q *fakeQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.d.f.mu.Lock()
	defer q.d.f.mu.Unlock()
	if q.attr.State == verbs.QPStateReset {
		return 0, verbs.ErrInvalid
	}
	q.rq.post(wrs)
	return len(wrs), nil
}

func (q *fakeQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.d.f.mu.Lock()
	defer q.d.f.mu.Unlock()
	for i := range wrs {
		if q.attr.State != verbs.QPStateRTS {
			return i, verbs.ErrInvalid
		}
		q.execute(&wrs[i])
	}
	return len(wrs), nil
}

// execute executes a work request at both ends.
func (q *fakeQP) execute(wr *verbs.SendWR) {
	f := q.d.f
	wc := verbs.WC{WRID: wr.WRID, QPN: q.qpn}
	local := wr.Inline
	if len(wr.SGL) > 0 {
		local = f.at(uint32(wr.SGL[0].LKey), wr.SGL[0].Addr, int(wr.SGL[0].Length))
	}
	dgid, dqpn := q.attr.AH.GRH.DGID, q.attr.DestQPN
	if q.init.Type == verbs.QPTypeUD {
		dgid, dqpn = wr.UD.AH.Attr().GRH.DGID, wr.UD.QPN
	}
	payload := bytes.Clone(local)
	if f.corrupt != nil {
		f.corrupt(dgid.Addr(), payload)
	}
	switch wr.Opcode {
	case verbs.OpRDMARead:
		wc.Opcode = verbs.WCOpRDMARead
		copy(local, f.at(uint32(wr.Remote.RKey), wr.Remote.Addr, len(local)))
	case verbs.OpRDMAWrite:
		wc.Opcode = verbs.WCOpRDMAWrite
		copy(f.at(uint32(wr.Remote.RKey), wr.Remote.Addr, len(local)), payload)
	default:
		f.devices[dgid].qps[dqpn].receive(payload, q, wr)
	}
	q.init.SendCQ.(*fakeCQ).push(wc)
}

// receive delivers a message when a receive is posted.
func (q *fakeQP) receive(payload []byte, from *fakeQP, wr *verbs.SendWR) {
	wc := verbs.WC{Opcode: verbs.WCOpRecv, QPN: q.qpn}
	if wr.Opcode == verbs.OpSendImm {
		wc.Imm, wc.Flags = wr.Imm, verbs.WCWithImm
	}
	if q.init.Type == verbs.QPTypeUD {
		area := make([]byte, verbs.GRHLen, verbs.GRHLen+len(payload))
		if from.d.addr.Is4() {
			area[20] = 0x45
			copy(area[32:], from.d.addr.AsSlice())
		} else {
			area[0] = 0x60
			copy(area[8:], from.d.addr.AsSlice())
		}
		payload = append(area, payload...)
		wc.SrcQP = from.qpn
		wc.Flags |= verbs.WCWithGRH
	}
	wc.ByteLen = uint32(len(payload))
	q.rq.deliver(func(wr verbs.RecvWR) {
		wc.WRID = wr.WRID
		copy(q.d.f.at(uint32(wr.SGL[0].LKey), wr.SGL[0].Addr, int(wr.SGL[0].Length)), payload)
		q.init.RecvCQ.(*fakeCQ).push(wc)
	})
}

// flush moves a queue pair to the error state and flushes its own receives.
func (q *fakeQP) flush() {
	q.d.f.mu.Lock()
	defer q.d.f.mu.Unlock()
	q.attr.State = verbs.QPStateErr
	for _, wr := range q.own.posted {
		q.init.RecvCQ.(*fakeCQ).push(verbs.WC{WRID: wr.WRID, QPN: q.qpn, Status: verbs.WCWRFlushErr})
	}
	q.own.posted = nil
}

// --- connection manager ---

type fakeCM struct{ dev *fakeDevice }

// request passes a request to the listener at addr, or returns ErrRejected.
func (c *fakeCM) request(addr netip.AddrPort, r *fakeRequest) error {
	c.dev.f.mu.Lock()
	l := c.dev.f.listeners[addr]
	c.dev.f.mu.Unlock()
	if l == nil {
		return verbs.ErrRejected
	}
	r.from = c.dev.addr
	l.requests <- r
	return nil
}

func (c *fakeCM) Resolve(addr netip.AddrPort, _ []byte, timeout time.Duration) (verbs.DatagramPeer, error) {
	r := &fakeRequest{resolved: make(chan verbs.DatagramPeer, 1)}
	if err := c.request(addr, r); err != nil {
		return verbs.DatagramPeer{}, err
	}
	return next(r.resolved, timeout)
}

func (c *fakeCM) Listen(addr netip.AddrPort, _ verbs.PortSpace, _ int) (verbs.Listener, error) {
	l := &fakeListener{addr: addr, requests: make(chan verbs.ConnRequest, 16), closerFunc: c.dev.countOpen()}
	c.dev.f.mu.Lock()
	defer c.dev.f.mu.Unlock()
	c.dev.f.listeners[addr] = l
	return l, nil
}

func (c *fakeCM) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	r := &fakeRequest{qp: qp.(*fakeQP), param: param, reply: make(chan verbs.Conn, 1), ended: make(chan struct{})}
	if err := c.request(addr, r); err != nil {
		return nil, err
	}
	return next(r.reply, timeout)
}

type fakeListener struct {
	addr     netip.AddrPort
	requests chan verbs.ConnRequest
	closerFunc
}

func (l *fakeListener) Addr() netip.AddrPort { return l.addr }
func (l *fakeListener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	return next(l.requests, timeout)
}

type fakeRequest struct {
	from     netip.Addr
	resolved chan verbs.DatagramPeer // of a lookup; the other fields are of a connection
	qp       *fakeQP
	// accepted is the queue pair of the passive end.
	accepted *fakeQP
	param    verbs.ConnParam
	reply    chan verbs.Conn
	end      sync.Once
	ended    chan struct{}
}

func (r *fakeRequest) Remote() netip.AddrPort { return netip.AddrPortFrom(r.from, 1) }
func (r *fakeRequest) Param() verbs.ConnParam { return r.param }
func (r *fakeRequest) Reject([]byte) error    { return errors.New("rejected") }

func (r *fakeRequest) Accept(qp verbs.QP, _ verbs.ConnParam, _ time.Duration) (verbs.Conn, error) {
	ours := qp.(*fakeQP)
	if r.resolved != nil {
		peer := verbs.DatagramPeer{QPN: ours.qpn, QKey: ours.attr.QKey}
		peer.AH.GRH.DGID = verbs.GIDFrom(ours.d.addr)
		r.resolved <- peer
		return nil, nil
	}
	connect := func(q, peer *fakeQP) {
		q.attr = verbs.QPAttr{State: verbs.QPStateRTS, DestQPN: peer.qpn}
		q.attr.AH.GRH.DGID = verbs.GIDFrom(peer.d.addr)
	}
	ours.d.f.mu.Lock()
	connect(ours, r.qp)
	connect(r.qp, ours)
	r.accepted = ours
	ours.d.f.mu.Unlock()
	conn := &fakeConn{r}
	r.reply <- conn
	return conn, nil
}

// fakeConn is both ends of a connection.
type fakeConn struct{ r *fakeRequest }

func (c *fakeConn) Param() verbs.ConnParam { return c.r.param }
func (c *fakeConn) Remote() netip.AddrPort { return c.r.Remote() }
func (c *fakeConn) Disconnect() error {
	c.r.end.Do(func() {
		c.r.qp.flush()
		c.r.accepted.flush()
		close(c.r.ended)
	})
	return nil
}

func (c *fakeConn) WaitDisconnect(timeout time.Duration) error {
	_, err := next(c.r.ended, timeout)
	return err
}
