package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// connection implements verbs.Conn. It exists before the connection is established.
type connection struct {
	m        *manager
	c        *engine.Conn
	qp       *queuePair // nil before Accept
	listener *listener  // nil after GetRequest has returned it
	cond     drive.Cond
	remote   netip.AddrPort
	param    verbs.ConnParam // from the peer's start-up frame
}

// newConnection returns the verbs connection for the engine's c, and makes it the owner of c.
// reason is printed in deadlock reports, for programs that wait for the connection.
func (m *manager) newConnection(c *engine.Conn, qp *queuePair, remote netip.AddrPort, reason string) *connection {
	x := &connection{m: m, c: c, qp: qp, remote: remote, cond: m.d.streams.NewCond(drive.WaitReason(reason))}
	c.Owner = x
	return x
}

// onStateChange handles a new state of the engine's connection. It wakes goroutines that wait for
// the connection, and informs the listener if GetRequest has not returned the connection yet.
func (x *connection) onStateChange() {
	if x.listener != nil {
		x.listener.onStateChange(x)
	}
	x.cond.Notify()
}

// waitEstablished waits until the connection is established. It returns an error if the connection
// ends first. If the wait fails, for example at the timeout, it aborts the connection.
func (x *connection) waitEstablished(timeout time.Duration) error {
	err := x.m.d.Wait("wait", x.cond, timeout, func() bool { return x.c.State() >= engine.Established })
	if err != nil {
		x.c.Abort()
		return err
	}
	if !x.c.WasEstablished {
		return x.connectError()
	}
	x.param = x.m.peerParam(x.c)
	return nil
}

// Reasons of a *verbs.RejectError, with the numbers of InfiniBand. MPA has none.
const (
	reasonNone           = 0
	reasonInvalidService = 8 // invalid service ID
	reasonConsumer       = 28
)

// connectError returns the error of package verbs for a connection that ended before it was
// established. Errors of the peer and invalid data are rejections; link errors stay as they are.
func (x *connection) connectError() error {
	err := x.c.Err()
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case x.qp != nil && x.qp.gone:
		return fmt.Errorf("%w: the queue pair was closed while it was being connected", verbs.ErrClosed)
	case err == nil:
		return fmt.Errorf("%w: the connection was closed while it was being established", verbs.ErrClosed)
	case is(engine.ErrRejected):
		return &verbs.RejectError{Reason: reasonConsumer, Text: "rejected by the remote application", PrivateData: x.c.PrivateData}
	case is(link.ErrRefused):
		return &verbs.RejectError{Reason: reasonInvalidService, Text: "no listener at the remote address"}
	case is(mpa.ErrEOF, link.ErrReset):
		return &verbs.RejectError{Reason: reasonNone, Text: "the peer closed the connection without a reply"}
	case is(mpa.ErrTimeout, engine.ErrCloseTimeout):
		return fmt.Errorf("%w: %w", verbs.ErrTimeout, err)
	case is(engine.ErrAborted):
		return fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	case is(link.ErrUnreachable, link.ErrAddrInUse, link.ErrLimit, link.ErrClosed):
		return err // Connect and Accept map link errors with connError
	case is(engine.ErrTerminated):
		return fmt.Errorf("%w: %w", &verbs.RejectError{Reason: reasonNone, Text: "the first message failed"}, err)
	}
	return fmt.Errorf("%w: %w", &verbs.RejectError{Reason: reasonNone, Text: "invalid data from the peer"}, err)
}

// Param returns the parameters of the peer's start-up frame.
func (x *connection) Param() verbs.ConnParam { return x.param }

// Remote is the peer's address.
func (x *connection) Remote() netip.AddrPort { return x.remote }

// Disconnect closes the connection gracefully: posted work requests complete, then the
// sending direction is closed. The queue pair accepts no more work requests, and is in the
// error state when the peer has closed its direction too.
func (x *connection) Disconnect() error {
	return x.m.d.Control("disconnect", func() error {
		x.c.Disconnect(x.m.d.streams.Now())
		return nil
	})
}

// WaitDisconnect waits until the connection is closed or broken.
func (x *connection) WaitDisconnect(timeout time.Duration) error {
	const op = "wait_disconnect"
	if err := x.m.d.Enter(op, drive.CallWait); err != nil {
		return err
	}
	defer x.m.d.Leave()
	return x.m.d.Wait(op, x.cond, timeout, func() bool { return x.c.State() == engine.Closed })
}
