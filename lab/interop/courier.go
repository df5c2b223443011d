package interop

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// courier is one end of a connection that carries plain sends: as many each way,
// all of one size.
type courier struct {
	size, count int
	qp          verbs.QP
	comp        *completions
	closers

	sendBuf, recvBuf []byte
	sendMR, recvMR   verbs.MR

	sent, received int

	// compose writes message n, inspect looks at message n received.
	compose func(n int, b []byte)
	inspect func(n int, b []byte) error
}

func newCourier(dev verbs.Context, size, count int, events bool) (_ *courier, err error) {
	c := &courier{
		size: size, count: count, sendBuf: make([]byte, size*count),
		compose: func(n int, b []byte) { numbered(n).fill(b) },
		inspect: func(int, []byte) error { return nil },
	}
	// One receive more than there are messages shows one that comes twice.
	c.recvBuf = make([]byte, c.slotLen()*(count+1))
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, pd)
	if c.comp, err = newCompletions(dev, 2*count+1, events); err != nil {
		return nil, err
	}
	c.closers = append(c.closers, closerFunc(c.comp.close))
	if c.sendMR, err = pd.RegMR(verbs.MRInit{Buf: c.sendBuf}); err != nil {
		return nil, err
	}
	c.closers = append(c.closers, c.sendMR)
	if c.recvMR, err = pd.RegMR(verbs.MRInit{Buf: c.recvBuf, Access: verbs.AccessLocalWrite}); err != nil {
		return nil, err
	}
	c.closers = append(c.closers, c.recvMR)
	caps := verbs.QPCaps{MaxSendWR: count, MaxRecvWR: count + 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	if size <= maxInline {
		caps.MaxInline = size
	}
	c.qp, err = dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: pd, SendCQ: c.comp.cq, RecvCQ: c.comp.cq, Caps: caps})
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, c.qp)
	if err := awaitConnection(dev, c.qp, 0); err != nil {
		return nil, err
	}
	return c, c.postRecvs()
}

func (c *courier) queuePair() verbs.QP { return c.qp }

func (c *courier) slotLen() int { return c.size + guardLen }

func (c *courier) slot(i int) (body, guard []byte) {
	slot := c.recvBuf[i*c.slotLen():][:c.slotLen()]
	return slot[:c.size], slot[c.size:]
}

func (c *courier) postRecvs() error {
	for i := range c.count + 1 {
		_, guard := c.slot(i)
		constant(guardByte).fill(guard)
		wr := verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{verbs.SGEOf(c.recvMR, i*c.slotLen(), c.size)}}
		if _, err := c.qp.PostRecv([]verbs.RecvWR{wr}); err != nil {
			return err
		}
	}
	return nil
}

// send posts all messages and waits for their completions; messages that come
// meanwhile are looked at.
func (c *courier) send(ctx context.Context) error {
	for n := range c.count {
		buf := c.sendBuf[n*c.size:][:c.size]
		c.compose(n, buf)
		wr := verbs.SendWR{WRID: sendWRID | uint64(n), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
		if c.size <= maxInline {
			wr.Flags |= verbs.SendInline
			wr.Inline = buf
		} else {
			wr.SGL = []verbs.SGE{verbs.SGEOf(c.sendMR, n*c.size, c.size)}
		}
		if _, err := c.qp.PostSend([]verbs.SendWR{wr}); err != nil {
			return fmt.Errorf("sending message %d: %w", n, err)
		}
		if wr.Flags&verbs.SendInline != 0 {
			clear(buf) // it is ours again; the message must not notice
		}
	}
	return c.wait(ctx, c.count, c.received)
}

// receive waits until all messages of the peer have come.
func (c *courier) receive(ctx context.Context) error { return c.wait(ctx, c.sent, c.count) }

// wait waits until so many messages have been sent and received.
func (c *courier) wait(ctx context.Context, sent, received int) error {
	for c.sent < sent || c.received < received {
		wcs, err := c.comp.next(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			if err := c.note(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// note books one completion. Sends and receives complete in order, each once.
func (c *courier) note(wc *verbs.WC) error {
	switch {
	case wc.Status == verbs.WCWRFlushErr && wc.WRID == uint64(c.count) && c.received == c.count:
		return nil // the peer has ended the connection; that receive was for nothing
	case wc.Status != verbs.WCSuccess:
		return fmt.Errorf("%v (vendor error %#x) for work request %#x", wc.Status, wc.VendorErr, wc.WRID)
	case wc.WRID == sendWRID|uint64(c.sent) && wc.Opcode == verbs.WCOpSend:
		c.sent++
		return nil
	case wc.WRID == uint64(c.received) && wc.Opcode == verbs.WCOpRecv && c.received < c.count:
		if err := c.open(wc); err != nil {
			return fmt.Errorf("message %d: %w", c.received, err)
		}
		c.received++
		return nil
	default:
		return fmt.Errorf("unexpected completion %+v", *wc)
	}
}

// open checks one message: its length, its data, and the memory behind it.
func (c *courier) open(wc *verbs.WC) error {
	body, guard := c.slot(int(wc.WRID))
	if int(wc.ByteLen) != c.size {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, c.size)
	}
	if err := c.inspect(c.received, body); err != nil {
		return err
	}
	if err := check(guard, constant(guardByte)); err != nil {
		return fmt.Errorf("memory behind the buffer was written: %w", err)
	}
	return nil
}

// finish looks at what is left when the connection has ended: nothing but the
// receive that no message was meant for, flushed.
func (c *courier) finish() error {
	for {
		n, err := c.comp.cq.Poll(c.comp.buf[:])
		if n == 0 || err != nil {
			return err
		}
		for i := range n {
			if err := c.note(&c.comp.buf[i]); err != nil {
				return fmt.Errorf("after the end: %w", err)
			}
		}
	}
}

// end ends a program: with err, or with what is left when all went well.
func (c *courier) end(err error) error {
	defer c.close()
	if err != nil {
		return fmt.Errorf("after %d of %d sent and %d received: %w", c.sent, c.count, c.received, err)
	}
	if err := c.finish(); err != nil {
		return err
	}
	return c.close()
}
