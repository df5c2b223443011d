package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// PingPort is where rping's server listens unless told.
const PingPort = 7174

// Ping is one run of rping, of which we are one end. Each ping is a send, an
// RDMA read, a send, another send, an RDMA write and a send: the client says
// where its data is, the server reads it and says so, the client says where it
// wants it, the server writes it back and says so.
type Ping struct {
	Role Role
	// Addr is the server: whom we connect to, or where we listen.
	Addr netip.AddrPort
	Size int
	// Count is how many pings the client makes.
	Count int
	// Connections is how many clients our server serves, all at a time, before
	// it ends; or how many we are. Zero is one.
	Connections int
	Events      bool
	// Ready, if set, is called when a client may connect to our server.
	Ready func()
}

// connParam is what rping asks for: one read at a time, either way.
var connParam = verbs.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// Run plays p on dev and checks all data: as the client, that what the server
// writes is what it has read; as the server, that what it reads is what rping
// makes up.
func (p Ping) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if p.Size < MinPingSize || p.Size > MaxPingSize {
		return Result{}, fmt.Errorf("rping sends %d to %d bytes, not %d", MinPingSize, MaxPingSize, p.Size)
	}
	if p.Count < 1 {
		return Result{}, fmt.Errorf("%d pings are none", p.Count)
	}
	cm, err := dev.CM()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	p.Connections = max(p.Connections, 1)
	switch p.Role {
	case Client:
		err = p.connectAll(ctx, dev, cm)
	case Server:
		err = p.serveAll(ctx, dev, cm)
	default:
		err = fmt.Errorf("%q is not a role", p.Role)
	}
	pings := p.Count * p.Connections
	return Result{Sent: 2 * pings, Received: 2 * pings, Elapsed: time.Since(start)}, err
}

// connectAll is the client, or several at a time. They connect in turn: rping's
// server remembers one request only, and a second that comes before it has begun
// to serve the first takes its place, never to be answered.
func (p Ping) connectAll(ctx context.Context, dev verbs.Context, cm verbs.CM) error {
	errs := make([]error, p.Connections)
	var running sync.WaitGroup
	for i := range errs {
		l, conn, err := connect(ctx, cm, p.Addr, connParam, func() (*pinger, error) { return newPinger(dev, p) })
		if err != nil {
			errs[i] = err
			break
		}
		running.Go(func() { errs[i] = p.pingOver(ctx, l, conn) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// serveAll is the server. It takes the requests in turn and serves them at a
// time, as rping does when it is told to persist.
func (p Ping) serveAll(ctx context.Context, dev verbs.Context, cm verbs.CM) error {
	listener, err := listen(cm, p.Addr, verbs.PortSpaceTCP, p.Connections, p.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	errs := make([]error, p.Connections)
	var running sync.WaitGroup
	for i := range errs {
		request, err := nextRequest(ctx, listener)
		if err != nil {
			errs[i] = err
			break
		}
		running.Go(func() { errs[i] = p.serve(ctx, dev, request) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// pingOver makes the pings of one connection and ends it.
func (p Ping) pingOver(ctx context.Context, l *pinger, conn verbs.Conn) error {
	defer l.close()
	for n := range p.Count {
		if err := l.ask(ctx, n); err != nil {
			return errors.Join(fmt.Errorf("ping %d: %w", n, err), conn.Disconnect())
		}
	}
	if err := errors.Join(l.drain(ctx), conn.Disconnect()); err != nil {
		return fmt.Errorf("after the last ping: %w", err)
	}
	return l.close()
}

// serve answers one client until it leaves.
func (p Ping) serve(ctx context.Context, dev verbs.Context, request verbs.ConnRequest) error {
	asked := request.Param()
	if asked.InitiatorDepth < 1 || asked.ResponderResources < 1 {
		return errors.Join(fmt.Errorf("%v asks for %+v: rping reads, and is read from", request.Remote(), asked), request.Reject(nil))
	}
	l, conn, err := acceptRequest(request, connParam, func() (*pinger, error) { return newPinger(dev, p) })
	if err != nil {
		return err
	}
	defer l.close()
	for n := range p.Count {
		if err := l.answer(ctx, n); err != nil {
			return errors.Join(fmt.Errorf("ping %d: %w", n, err), conn.Disconnect())
		}
	}
	// The client ends the connection, and nothing may come before that.
	if err := errors.Join(l.drain(ctx), awaitEnd(ctx, conn)); err != nil {
		return fmt.Errorf("after the last ping: %w", err)
	}
	return l.close()
}
