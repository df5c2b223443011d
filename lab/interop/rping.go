package interop

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

// rpingRun is one end of rping with all its connections.
type rpingRun struct {
	CMProgram
	dev verbs.Context
	cm  verbs.CM
}

// run runs the program. As the client it checks that the server writes the data that it has
// read; as the server, that it reads the data that rping makes up.
func (r *rpingRun) run(ctx context.Context) (_ Result, err error) {
	if r.Role == Client {
		err = r.runClients(ctx)
	} else {
		err = r.runServer(ctx)
	}
	pings := r.Count * r.Connections
	return Result{Sent: 2 * pings, Received: 2 * pings}, err
}

func (r *rpingRun) newConn() (*rpingConn, error) { return newRPingConn(r.dev, r.Size, r.Events) }

// runClients runs a client for each connection, all at a time. They connect in turn: rping's
// server remembers one request only, and a second that arrives before it has accepted the
// first takes its place, never to be answered.
func (r *rpingRun) runClients(ctx context.Context) error {
	return r.runAll(func() (func() error, error) {
		c, err := connect(ctx, r.cm, r.Addr, r.newConn)
		return func() error { return r.runClient(ctx, c) }, err
	})
}

// runServer takes the requests in turn and serves their connections at a time, as rping
// does with -P.
func (r *rpingRun) runServer(ctx context.Context) error {
	listener, err := listen(r.cm, r.Addr, verbs.PortSpaceTCP, r.Connections, r.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	return r.runAll(func() (func() error, error) {
		request, err := nextRequest(ctx, listener)
		return func() error { return r.serve(ctx, request) }, err
	})
}

// runAll calls start for each connection, up to the first error, and runs the functions that
// start returns at the same time.
func (r *rpingRun) runAll(start func() (run func() error, err error)) error {
	errs := make([]error, r.Connections)
	var running sync.WaitGroup
	for i := range errs {
		run, err := start()
		if err != nil {
			errs[i] = err
			break
		}
		running.Go(func() { errs[i] = run() })
	}
	running.Wait()
	return errors.Join(errs...)
}

// runClient sends the pings of one connection and disconnects.
func (r *rpingRun) runClient(ctx context.Context, c *rpingConn) error {
	return r.ping(ctx, c, c.clientPing, c.conn.Disconnect)
}

// serve accepts a request and answers the client until it disconnects.
func (r *rpingRun) serve(ctx context.Context, request verbs.ConnRequest) error {
	asked := request.Param()
	if asked.InitiatorDepth < 1 || asked.ResponderResources < 1 {
		return errors.Join(fmt.Errorf("%v asks for %+v: rping reads, and is read from", request.Remote(), asked), request.Reject(nil))
	}
	c, err := acceptRequest(request, r.newConn)
	if err != nil {
		return err
	}
	return r.ping(ctx, c, c.serverPing, func() error { return awaitDisconnect(ctx, c.conn) })
}

// ping calls ping for the number of every ping, ends the connection by disconnect and closes c.
func (r *rpingRun) ping(ctx context.Context, c *rpingConn, ping func(ctx context.Context, n int) error, disconnect func() error) error {
	defer c.close()
	for n := range r.Count {
		if err := ping(ctx, n); err != nil {
			return errors.Join(fmt.Errorf("ping %d: %w", n, err), c.conn.Disconnect())
		}
	}
	if err := errors.Join(c.drain(ctx), disconnect()); err != nil {
		return fmt.Errorf("after the last ping: %w", err)
	}
	return c.close()
}
