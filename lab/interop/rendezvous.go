package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// cmTimeout bounds one step of the connection manager; the kernel repeats its
// messages every four seconds or so.
const cmTimeout = 30 * time.Second

// closers are what a program has made, in order.
type closers []io.Closer

// close closes them, the last first. It may be called again.
func (c *closers) close() error {
	var errs []error
	for _, made := range slices.Backward(*c) {
		errs = append(errs, made.Close())
	}
	*c = nil
	return errors.Join(errs...)
}

// awaitConnection brings a queue pair to where receives can be posted, since the
// peer may send as soon as it is connected; the connection manager does the rest.
// An iWARP queue pair has neither a partition nor a port to be told of.
func awaitConnection(dev verbs.Context, qp verbs.QP, access verbs.Access) error {
	mask := verbs.QPAttrState | verbs.QPAttrAccessFlags
	if dev.Info().Transport != verbs.TransportIWARP {
		mask |= verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	}
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, Access: access}, mask)
}

// end is a program's end of a connection: a queue pair, and what it needs.
type end interface {
	queuePair() verbs.QP
	close() error
}

// connect makes an end and connects it to a server that may not listen yet. A
// queue pair that was refused is of no more use, so each attempt makes its own.
func connect[E end](ctx context.Context, cm verbs.CM, addr netip.AddrPort, param verbs.ConnParam, newEnd func() (E, error)) (E, verbs.Conn, error) {
	var none E
	for {
		e, err := newEnd()
		if err != nil {
			return none, nil, err
		}
		conn, err := cm.Connect(e.queuePair(), addr, param, cmTimeout)
		if err == nil {
			return e, conn, nil
		}
		err = errors.Join(fmt.Errorf("connecting to %v: %w", addr, err), e.close())
		if !nobodyListens(err) {
			return none, nil, err
		}
		select {
		case <-ctx.Done():
			return none, nil, fmt.Errorf("nobody listens: %w", err)
		case <-time.After(retryPause):
		}
	}
}

// noListener is the reason with which InfiniBand's connection manager rejects a
// request to a port that nobody listens on.
const noListener = 8

// nobodyListens reports whether a connection was refused for want of a listener:
// by InfiniBand's connection manager, or, under iWARP, by TCP.
func nobodyListens(err error) bool {
	var rejected *verbs.RejectError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &rejected) && rejected.Reason == noListener
}

// listen makes addr a server's and tells ready, if set, that clients may come.
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

// nextRequest waits for a client, or for the end of ctx.
func nextRequest(ctx context.Context, listener verbs.Listener) (verbs.ConnRequest, error) {
	for {
		request, err := listener.GetRequest(eventSlice)
		if !errors.Is(err, verbs.ErrTimeout) {
			return request, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("nobody came: %w", context.Cause(ctx))
		}
	}
}

// acceptRequest makes an end and gives it to the client that asks.
func acceptRequest[E end](request verbs.ConnRequest, param verbs.ConnParam, newEnd func() (E, error)) (E, verbs.Conn, error) {
	var none E
	e, err := newEnd()
	if err != nil {
		return none, nil, errors.Join(err, request.Reject(nil))
	}
	conn, err := request.Accept(e.queuePair(), param, cmTimeout)
	if err != nil {
		return none, nil, errors.Join(fmt.Errorf("accepting %v: %w", request.Remote(), err), e.close())
	}
	return e, conn, nil
}

// awaitEnd waits until the peer has ended the connection, or for the end of ctx.
func awaitEnd(ctx context.Context, conn verbs.Conn) error {
	for {
		err := conn.WaitDisconnect(eventSlice)
		if !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the peer does not end the connection: %w", context.Cause(ctx))
		}
	}
}
