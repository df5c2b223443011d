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

// run runs the program and closes its connections.
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

// client connects all connections and runs them to their end.
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
	// A client of rdma_cm disconnects too when its server has.
	return errors.Join(err, r.forEach(disconnect))
}

// server accepts all connections and runs them to their end.
func (r *messageRun) server(ctx context.Context) error {
	listener, err := listen(r.cm, r.Addr, verbs.PortSpaceTCP, r.Connections, r.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	for err == nil && len(r.conns) < r.Connections {
		request, rerr := nextRequest(ctx, listener)
		if err = rerr; err == nil {
			var c *messageConn
			if c, err = acceptRequest(request, r.newConn); err == nil {
				r.conns = append(r.conns, c)
			}
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

// forEach runs the steps in turn, each on all connections in turn, up to the first error.
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
