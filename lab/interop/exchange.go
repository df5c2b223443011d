package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Facts of rdma_client and rdma_server.
const (
	ExchangePort = 7471 // unless told; ucmatose has the same
	ExchangeSize = 16
)

// Exchange is one run of rdma_client and rdma_server, of which we are one end: the
// client sends 16 bytes, the server returns 16 others, and both end the connection
// at the same time.
type Exchange struct {
	Role Role
	// Addr is the server: whom we connect to, or where we listen.
	Addr   netip.AddrPort
	Events bool
	// Ready, if set, is called when a client may connect to our server.
	Ready func()
}

// Run plays x on dev. The programs' data is all zeros, which is checked; they do
// not look at ours.
func (x Exchange) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	return x.run(ctx, dev, func(c *courier) {
		c.inspect = func(_ int, b []byte) error { return check(b, constant(0)) }
		poison(c)
	})
}

// run plays x with couriers that instruct tells what to say and to expect.
func (x Exchange) run(ctx context.Context, dev verbs.Context, instruct func(*courier)) (Result, error) {
	cm, err := dev.CM()
	if err != nil {
		return Result{}, err
	}
	newEnd := func() (*courier, error) {
		c, err := newCourier(dev, ExchangeSize, 1, x.Events)
		if err == nil {
			instruct(c)
		}
		return c, err
	}
	start := time.Now()
	var c *courier
	switch x.Role {
	case Client:
		c, err = x.ask(ctx, cm, newEnd)
	case Server:
		c, err = x.answer(ctx, cm, newEnd)
	default:
		err = fmt.Errorf("%q is not a role", x.Role)
	}
	if c == nil {
		return Result{}, err
	}
	return Result{Sent: c.sent, Received: c.received, Elapsed: time.Since(start)}, c.end(err)
}

// poison fills what messages of zeros will be received into.
func poison(c *courier) {
	for i := range c.count + 1 {
		body, _ := c.slot(i)
		constant(fillByte).fill(body)
	}
}

func (x Exchange) ask(ctx context.Context, cm verbs.CM, newEnd func() (*courier, error)) (*courier, error) {
	c, conn, err := connect(ctx, cm, x.Addr, connParam, newEnd)
	if err != nil {
		return nil, err
	}
	err = c.send(ctx)
	if err == nil {
		err = c.receive(ctx)
	}
	return c, errors.Join(err, conn.Disconnect())
}

func (x Exchange) answer(ctx context.Context, cm verbs.CM, newEnd func() (*courier, error)) (*courier, error) {
	listener, err := listen(cm, x.Addr, verbs.PortSpaceTCP, 1, x.Ready)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	request, err := nextRequest(ctx, listener)
	if err != nil {
		return nil, err
	}
	c, conn, err := acceptRequest(request, connParam, newEnd)
	if err != nil {
		return nil, err
	}
	err = c.receive(ctx)
	if err == nil {
		err = c.send(ctx)
	}
	return c, errors.Join(err, conn.Disconnect())
}
