package interop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// messageRun is one end of ucmatose, rdma_client or rdma_server with all its connections.
type messageRun struct {
	CMProgram
	contents
	dev   verbs.Context
	cm    verbs.CM
	conns []*messageConn
}

// run runs our end of ucmatose, rdma_client or rdma_server, and closes its connections.
func (r *messageRun) run(ctx context.Context) (result Result, err error) {
	if r.Role == Client {
		err = r.client(ctx)
	} else {
		err = r.server(ctx)
	}
	for i, c := range r.conns {
		result.Sent += c.sent
		result.Received += c.received
		if err == nil {
			if err = c.checkRest(); err != nil {
				err = fmt.Errorf("connection %d: %w", i, err)
			}
		}
		err = errors.Join(err, c.close())
	}
	return result, err
}

// newConn creates the queue pair of the next connection.
func (r *messageRun) newConn() (*messageConn, error) { return newMessageConn(r, len(r.conns)) }

// client connects all connections and exchanges the messages of the tool. The client of the tool
// RDMA (rdma_client) sends first; others receive first, and wait until the server disconnects.
func (r *messageRun) client(ctx context.Context) (err error) {
	for err == nil && len(r.conns) < r.Connections {
		var c *messageConn
		if c, err = connect(ctx, r.cm, r.Addr, r.newConn); err == nil {
			r.conns = append(r.conns, c)
		}
	}
	if err == nil && r.Tool == RDMA {
		err = r.forEach(send(ctx), receive(ctx))
	} else if err == nil {
		disconnected := step{"waiting for the disconnect", func(c *messageConn) error { return awaitDisconnect(ctx, c.conn) }}
		err = r.forEach(receive(ctx), send(ctx), disconnected)
	}
	// A client of rdma_cm also disconnects if its server has already done so.
	return errors.Join(err, r.forEach(disconnect))
}

// server accepts all connections, exchanges the messages of the tool and disconnects. The server of
// the tool RDMA (rdma_server) receives first; those of other tools send first, after SendDelay.
func (r *messageRun) server(ctx context.Context) error {
	listener, err := listen(r.cm, r.Addr, verbs.PortSpaceTCP, r.Connections, r.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	for err == nil && len(r.conns) < r.Connections {
		var c *messageConn
		if c, err = r.acceptNext(ctx, listener); err == nil {
			r.conns = append(r.conns, c)
		}
	}
	if err == nil && r.Tool == RDMA {
		err = r.forEach(receive(ctx), send(ctx))
	} else if err == nil {
		time.Sleep(r.SendDelay)
		err = r.forEach(send(ctx), receive(ctx))
	}
	return errors.Join(err, r.forEach(disconnect))
}

// step is a part of a program that every connection runs.
type step struct {
	name string
	run  func(*messageConn) error
}

func send(ctx context.Context) step {
	return step{"sending", func(c *messageConn) error { return c.send(ctx) }}
}

func receive(ctx context.Context) step {
	return step{"receiving", func(c *messageConn) error { return c.receive(ctx) }}
}

var disconnect = step{"disconnecting", func(c *messageConn) error { return c.conn.Disconnect() }}

// acceptNext accepts the next connection request.
func (r *messageRun) acceptNext(ctx context.Context, listener verbs.Listener) (*messageConn, error) {
	request, err := nextRequest(ctx, listener)
	if err != nil {
		return nil, err
	}
	return acceptRequest(request, r.newConn)
}

// forEach runs the steps one after the other, each on all connections, up to the first error.
func (r *messageRun) forEach(steps ...step) error {
	for _, s := range steps {
		for i, c := range r.conns {
			if err := s.run(c); err != nil {
				return fmt.Errorf("%s, connection %d, after %d of %d sent and %d received: %w", s.name, i, c.sent, r.Count, c.received, err)
			}
		}
	}
	return nil
}

// messageConn is one end of a connection that carries Count sends of Size bytes each way.
type messageConn struct {
	run   *messageRun
	index int // of the connection
	rcConn

	sendBuf, recvBuf []byte
	sendMR, recvMR   verbs.MR

	sent, received int
}

// newMessageConn creates the queue pair of connection number index and posts its receives.
func newMessageConn(r *messageRun, index int) (*messageConn, error) {
	c := &messageConn{run: r, index: index, sendBuf: make([]byte, r.Size*r.Count)}
	recvs := r.Count + 1 // the additional one detects a message that arrives twice
	c.resources = newResources(r.dev, r.Count+recvs, r.Events)
	c.recvBuf = make([]byte, c.slotLen()*recvs)
	c.sendMR = c.regMR(c.sendBuf, 0) // the device only reads it
	c.recvMR = c.regMR(c.recvBuf, verbs.AccessLocalWrite)
	c.createQP(verbs.QPCaps{MaxSendWR: r.Count, MaxRecvWR: recvs, MaxInline: inlineLen(r.Size)}, 0)
	for i := range recvs {
		c.do(func() error { return c.postRecv(i) })
	}
	return c, c.finish()
}

func (c *messageConn) slotLen() int { return c.run.Size + guardLen }

// slot returns receive buffer i, and its guard: the bytes behind it, which no message may change.
func (c *messageConn) slot(i int) (body, guard []byte) {
	slot := c.recvBuf[i*c.slotLen():][:c.slotLen()]
	return slot[:c.run.Size], slot[c.run.Size:]
}

// postRecv posts receive buffer i. It fills the buffer first, to tell received zeros from unwritten
// memory, and the guard behind it, which no message may change.
func (c *messageConn) postRecv(i int) error {
	body, guard := c.slot(i)
	constant(fillByte).fill(body)
	constant(guardByte).fill(guard)
	wr := verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{verbs.SGEOf(c.recvMR, i*c.slotLen(), len(body))}}
	_, err := c.qp.PostRecv([]verbs.RecvWR{wr})
	return err
}

// send posts all messages, waits for their completions, and checks messages that arrive meanwhile.
func (c *messageConn) send(ctx context.Context) error {
	size := c.run.Size
	for n := range c.run.Count {
		buf := c.sendBuf[n*size:][:size]
		c.run.compose(c.index, n, buf)
		if err := postSend(c.qp, sendWR(sendWRID|uint64(n), buf, c.sendMR, n*size)); err != nil {
			return fmt.Errorf("sending message %d: %w", n, err)
		}
	}
	return c.comp.handle(ctx, c.handle, func() bool { return c.sent == c.run.Count })
}

// receive waits until all messages of the peer have arrived.
func (c *messageConn) receive(ctx context.Context) error {
	return c.comp.handle(ctx, c.handle, func() bool { return c.received == c.run.Count })
}

// handle checks one completion. Sends and receives complete in order, each once.
func (c *messageConn) handle(wc *verbs.WC) error {
	count := c.run.Count
	switch {
	case wc.Status == verbs.WCWRFlushErr && wc.WRID == uint64(count) && c.received == count:
		return nil // the peer has disconnected, which flushes the receive without a message
	case wc.Status != verbs.WCSuccess:
		return completionError(wc)
	case wc.WRID == sendWRID|uint64(c.sent) && wc.Opcode == verbs.WCOpSend:
		c.sent++
		return nil
	case wc.WRID == uint64(c.received) && wc.Opcode == verbs.WCOpRecv && c.received < count:
		if err := c.checkMessage(wc); err != nil {
			return fmt.Errorf("message %d: %w", c.received, err)
		}
		c.received++
		return nil
	default:
		return fmt.Errorf("unexpected completion %+v", *wc)
	}
}

// checkMessage checks the length and the data of a message, and the memory behind it.
func (c *messageConn) checkMessage(wc *verbs.WC) error {
	body, guard := c.slot(int(wc.WRID))
	if int(wc.ByteLen) != len(body) {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, len(body))
	}
	if err := c.run.inspect(c.index, c.received, body); err != nil {
		return err
	}
	return checkGuard(guard)
}

// checkRest checks the completions that are left after the disconnect. One receive more is posted than
// messages come; handle accepts its completion if it is flushed, and no other.
func (c *messageConn) checkRest() error {
	for {
		n, err := c.comp.cq.Poll(c.comp.buf[:])
		if n == 0 || err != nil {
			return err
		}
		for i := range n {
			if err := c.handle(&c.comp.buf[i]); err != nil {
				return fmt.Errorf("after the disconnect: %w", err)
			}
		}
	}
}
