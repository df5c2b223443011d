package mpi

import "github.com/fabrictest/fabrictest/mpi/p2p"

// Recv receives a message.
func (c *Comm) Recv(buf []byte, source, tag int) (Status, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return empty, c.raise("Recv", err)
	}
	if source == ProcNull {
		return fromNobody, nil
	}
	c.k.lock()
	r := c.k.borrow()
	c.startRecv(&r.p, c.context, buf, source, tag)
	c.k.until(r.p.Done)
	st, err := c.received(&r.p), r.p.Err
	c.k.giveBack(r)
	c.k.unlock()
	return st, c.raise("Recv", err)
}

// startRecv begins a receive.
func (c *Comm) startRecv(p *p2p.Request, context uint32, buf []byte, source, tag int) {
	if source != AnySource {
		source = c.worldRank(source)
	}
	p.Peer, p.Context, p.Tag, p.Buf = source, context, int32(tag), buf
	c.k.p2p.Irecv(p)
}

// received is the status of a receive that is done.
func (c *Comm) received(p *p2p.Request) Status {
	switch {
	case p.Cancelled:
		return Status{Source: AnySource, Tag: AnyTag, Cancelled: true}
	case p.Matched() && (p.Err == nil || p.Size > 0):
		return Status{Source: c.rankOf(p.Source), Tag: int(p.MatchedTag), Count: min(p.Size, len(p.Buf))}
	}
	return empty
}

// Irecv begins a receive.
func (c *Comm) Irecv(buf []byte, source, tag int) (*Request, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return nil, c.raise("Irecv", err)
	}
	if source == ProcNull {
		return &Request{c: c, call: "Irecv", active: true, found: fromNobody}, nil
	}
	r := &Request{c: c, call: "Irecv", active: true, kind: receives}
	c.k.lock()
	c.startRecv(&r.p, c.context, buf, source, tag)
	c.k.unlock()
	return r, nil
}

// Sendrecv sends a message and receives another, whichever can go first.
func (c *Comm) Sendrecv(sendbuf []byte, dest, sendtag int, recvbuf []byte, source, recvtag int) (Status, error) {
	return c.sendrecv("Sendrecv", sendbuf, dest, sendtag, recvbuf, source, recvtag)
}

// SendrecvReplace sends what is in a buffer, and receives into it.
func (c *Comm) SendrecvReplace(buf []byte, dest, sendtag, source, recvtag int) (Status, error) {
	return c.sendrecv("SendrecvReplace", append([]byte(nil), buf...), dest, sendtag, buf, source, recvtag)
}

func (c *Comm) sendrecv(call string, sendbuf []byte, dest, sendtag int, recvbuf []byte, source, recvtag int) (Status, error) {
	err := c.checkSend(dest, sendtag)
	if err == nil {
		err = c.checkRecv(source, recvtag)
	}
	if err != nil {
		return empty, c.raise(call, err)
	}
	c.k.lock()
	st, err := c.exchange(c.context, sendbuf, dest, sendtag, recvbuf, source, recvtag)
	c.k.unlock()
	return st, c.raise(call, err)
}

// exchange sends and receives, and waits for both. The lock is held.
func (c *Comm) exchange(context uint32, sendbuf []byte, dest, sendtag int, recvbuf []byte, source, recvtag int) (st Status, err error) {
	st = fromNobody
	var s, r *Request
	if source != ProcNull {
		r = c.k.borrow()
		c.startRecv(&r.p, context, recvbuf, source, recvtag)
	}
	if dest != ProcNull {
		s = c.k.borrow()
		c.startSend(&s.p, context, sendbuf, dest, sendtag, p2p.Standard)
	}
	if r != nil {
		c.k.until(r.p.Done)
		st, err = c.received(&r.p), r.p.Err
		c.k.giveBack(r)
		if err != nil && context&collective != 0 {
			c.giveUp() // now: whom we send to may wait for one who waits for us
		}
	}
	if s != nil {
		c.k.until(s.p.Done)
		if err == nil {
			err = s.p.Err
		}
		c.k.giveBack(s)
	}
	return st, err
}
