package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Volley is one run of ucmatose, of which we are one end: over each connection the
// server sends all its messages at once; when the client has them it sends as many
// back, and the server ends the connection.
//
// The server speaks first, which iWARP allows it only when the client has let it:
// by enhanced connection set-up, or by having sent something.
type Volley struct {
	Role Role
	// Addr is the server: whom we connect to, or where we listen.
	Addr  netip.AddrPort
	Size  int
	Count int // messages each way over a connection
	// Connections is how many connections there are, all at a time. Zero is one.
	Connections int
	Events      bool
	// Pause is how long our server waits before it speaks. A client on siw takes what
	// comes right behind the reply to its request for a breach of RFC 5044, and fails
	// to connect.
	Pause time.Duration
	// Ready, if set, is called when a client may connect to our server.
	Ready func()
}

// Run plays v on dev. ucmatose sends from the buffer that it receives into. So as
// the server we get our last message back, as often as the client sends; as the
// client we get what the server's memory held, but every time the same.
func (v Volley) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	return v.run(ctx, dev, v.instruct)
}

// instruct tells our end of connection i what to say and to expect. No two messages
// are alike, not even of two connections.
func (v Volley) instruct(i int, c *courier) {
	first := i * v.Count
	c.compose = func(n int, b []byte) { numbered(first + n).fill(b) }
	c.inspect = func(_ int, b []byte) error { return check(b, numbered(first+v.Count-1)) }
	if v.Role == Server {
		return
	}
	c.inspect = func(_ int, b []byte) error {
		one, _ := c.slot(0)
		if bytes.Equal(b, one) {
			return nil
		}
		return fmt.Errorf("unlike message 0: %w", check(b, func(i int) byte { return one[i] }))
	}
}

func (v Volley) run(ctx context.Context, dev verbs.Context, instruct func(int, *courier)) (Result, error) {
	if v.Size < 1 || v.Count < 1 {
		return Result{}, fmt.Errorf("size %d and count %d must be positive", v.Size, v.Count)
	}
	cm, err := dev.CM()
	if err != nil {
		return Result{}, err
	}
	v.Connections = max(v.Connections, 1)
	start := time.Now()
	r := &rank{Volley: v, dev: dev, cm: cm, instruct: instruct}
	switch v.Role {
	case Client:
		err = r.reply(ctx)
	case Server:
		err = r.fire(ctx)
	default:
		err = fmt.Errorf("%q is not a role", v.Role)
	}
	var result Result
	for i, c := range r.couriers {
		result.Sent += c.sent
		result.Received += c.received
		if err != nil {
			err = errors.Join(err, c.close())
		} else if cerr := c.end(nil); cerr != nil {
			err = fmt.Errorf("connection %d: %w", i, cerr)
		}
	}
	result.Elapsed = time.Since(start)
	return result, err
}

// rank is our ends of all connections of a ucmatose.
type rank struct {
	Volley
	dev      verbs.Context
	cm       verbs.CM
	instruct func(int, *courier)
	couriers []*courier
	conns    []verbs.Conn
}

// newCourier makes our end of the next connection.
func (r *rank) newCourier() (*courier, error) {
	c, err := newCourier(r.dev, r.Size, r.Count, r.Events)
	if err == nil {
		r.instruct(len(r.couriers), c)
	}
	return c, err
}

func (r *rank) add(c *courier, conn verbs.Conn, err error) error {
	if err == nil {
		r.couriers, r.conns = append(r.couriers, c), append(r.conns, conn)
	}
	return err
}

// reply is the client.
func (r *rank) reply(ctx context.Context) error {
	for range r.Connections {
		if err := r.add(connect(ctx, r.cm, r.Addr, connParam, r.newCourier)); err != nil {
			return errors.Join(err, r.each("leaving", func(_ *courier, conn verbs.Conn) error { return conn.Disconnect() }))
		}
	}
	err := r.each("receiving", func(c *courier, _ verbs.Conn) error { return c.receive(ctx) })
	if err == nil {
		err = r.each("sending", func(c *courier, _ verbs.Conn) error { return c.send(ctx) })
	}
	if err == nil {
		err = r.each("ending", func(_ *courier, conn verbs.Conn) error { return awaitEnd(ctx, conn) })
	}
	// rdma_cm's clients answer the end of a connection with their own.
	return errors.Join(err, r.each("leaving", func(_ *courier, conn verbs.Conn) error { return conn.Disconnect() }))
}

// fire is the server.
func (r *rank) fire(ctx context.Context) error {
	listener, err := listen(r.cm, r.Addr, verbs.PortSpaceTCP, r.Connections, r.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	for err == nil && len(r.couriers) < r.Connections {
		request, rerr := nextRequest(ctx, listener)
		if err = rerr; err == nil {
			err = r.add(acceptRequest(request, connParam, r.newCourier))
		}
	}
	if err == nil {
		time.Sleep(r.Pause)
		err = r.each("sending", func(c *courier, _ verbs.Conn) error { return c.send(ctx) })
	}
	if err == nil {
		err = r.each("receiving", func(c *courier, _ verbs.Conn) error { return c.receive(ctx) })
	}
	return errors.Join(err, r.each("ending", func(_ *courier, conn verbs.Conn) error { return conn.Disconnect() }))
}

// each does something with every connection, in turn, up to the first error.
func (r *rank) each(doing string, f func(*courier, verbs.Conn) error) error {
	for i, c := range r.couriers {
		if err := f(c, r.conns[i]); err != nil {
			return fmt.Errorf("%s, connection %d, after %d of %d sent and %d received: %w", doing, i, c.sent, c.count, c.received, err)
		}
	}
	return nil
}
