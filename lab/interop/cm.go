package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// cmTimeout bounds one step of the connection manager; the kernel retransmits its
// messages about every four seconds.
const cmTimeout = 30 * time.Second

// connParam is the request of rping: one RDMA read at a time in either direction.
var connParam = verbs.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// rcConn is one end of a connection: an RC queue pair and the other objects of a program.
type rcConn struct {
	resources
	qp   verbs.QP
	conn verbs.Conn // nil until it is connected
}

func (c *rcConn) rc() *rcConn { return c }

// createQP creates the queue pair in state Init, where receives can be posted: the peer may
// send as soon as it is connected. An iWARP queue pair takes no partition key and no port.
func (c *rcConn) createQP(caps verbs.QPCaps, access verbs.Access) {
	c.qp = c.resources.createQP(verbs.QPInit{Type: verbs.QPTypeRC, Caps: caps})
	mask := verbs.QPAttrState | verbs.QPAttrAccessFlags
	if c.dev.Info().Transport != verbs.TransportIWARP {
		mask |= verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	}
	c.do(func() error {
		return c.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, Access: access}, mask)
	})
}

// connect creates a queue pair and connects it to a server that may not listen yet. A queue
// pair that was rejected cannot be used again, so each attempt creates its own.
func connect[C interface{ rc() *rcConn }](ctx context.Context, cm verbs.CM, addr netip.AddrPort, newConn func() (C, error)) (C, error) {
	for {
		c, err := newConn()
		if err != nil {
			return c, err
		}
		if c.rc().conn, err = cm.Connect(c.rc().qp, addr, connParam, cmTimeout); err == nil {
			return c, nil
		}
		err = errors.Join(fmt.Errorf("connecting to %v: %w", addr, err), c.rc().close())
		if !nobodyListens(err) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return c, fmt.Errorf("nobody listens: %w", err)
		case <-time.After(retryPause):
		}
	}
}

// noListener is the reason with which InfiniBand's connection manager rejects a
// request to a port without a listener.
const noListener = 8

// nobodyListens reports whether a connection was rejected because the port has no listener: by
// InfiniBand's connection manager, or, under iWARP, by TCP.
func nobodyListens(err error) bool {
	var rejected *verbs.RejectError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &rejected) && rejected.Reason == noListener
}

// listen listens on addr, and then calls ready, which may be nil.
func listen(cm verbs.CM, addr netip.AddrPort, space verbs.PortSpace, backlog int, ready func()) (verbs.Listener, error) {
	listener, err := cm.Listen(addr, space, backlog)
	if err != nil {
		return nil, fmt.Errorf("listening on %v: %w", addr, err)
	}
	if ready != nil {
		ready()
	}
	return listener, nil
}

// nextRequest waits for a connection request, or for the end of ctx.
func nextRequest(ctx context.Context, listener verbs.Listener) (verbs.ConnRequest, error) {
	return waitWhile(ctx, "nobody came", listener.GetRequest)
}

// acceptRequest creates a queue pair and accepts a connection request with it.
func acceptRequest[C interface{ rc() *rcConn }](request verbs.ConnRequest, newConn func() (C, error)) (C, error) {
	c, err := newConn()
	if err != nil {
		return c, errors.Join(err, request.Reject(nil))
	}
	if c.rc().conn, err = request.Accept(c.rc().qp, connParam, cmTimeout); err != nil {
		return c, errors.Join(fmt.Errorf("accepting %v: %w", request.Remote(), err), c.rc().close())
	}
	return c, nil
}

// awaitDisconnect waits until the peer has disconnected, or for the end of ctx.
func awaitDisconnect(ctx context.Context, conn verbs.Conn) error {
	_, err := waitWhile(ctx, "the peer does not end the connection", func(timeout time.Duration) (struct{}, error) {
		return struct{}{}, conn.WaitDisconnect(timeout)
	})
	return err
}

// waitWhile calls wait until it returns another error than ErrTimeout. If ctx ends first, the error
// is problem and the cause.
func waitWhile[T any](ctx context.Context, problem string, wait func(timeout time.Duration) (T, error)) (T, error) {
	for {
		result, err := wait(eventSlice)
		if !errors.Is(err, verbs.ErrTimeout) {
			return result, err
		}
		if ctx.Err() != nil {
			return result, fmt.Errorf("%s: %w", problem, context.Cause(ctx))
		}
	}
}
