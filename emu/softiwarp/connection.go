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
	manager    *manager
	engineConn *engine.Conn
	qp         *queuePair // nil before Accept
	listener   *listener  // nil after GetRequest has returned it
	cond       drive.Cond
	remote     netip.AddrPort
	param      verbs.ConnParam // from the peer's start-up frame
}

// newConnection returns the verbs connection for the engine's c, and makes it the owner of c.
// reason is printed in deadlock reports, for programs that wait for the connection.
func (m *manager) newConnection(c *engine.Conn, qp *queuePair, remote netip.AddrPort, reason string) *connection {
	conn := &connection{manager: m, engineConn: c, qp: qp, remote: remote, cond: m.device.streams.NewCond(drive.WaitReason(reason))}
	c.Owner = conn
	return conn
}

// onStateChange handles a new state of the engine's connection. It wakes goroutines that wait for
// the connection, and informs the listener if GetRequest has not returned the connection yet.
func (conn *connection) onStateChange() {
	if conn.listener != nil {
		conn.listener.onStateChange(conn)
	}
	conn.cond.Notify()
}

// waitEstablished waits until the connection is established. It returns an error if the connection
// ends first. If the wait fails, for example at the timeout, it aborts the connection. Else it sets
// conn.param.
func (conn *connection) waitEstablished(timeout time.Duration) error {
	establishedOrEnded := func() bool { return conn.engineConn.State() >= engine.Established } // later states are those of the end
	err := conn.manager.device.Wait("wait", conn.cond, timeout, establishedOrEnded)
	if err != nil {
		conn.engineConn.Abort()
		return err
	}
	if !conn.engineConn.WasEstablished {
		return conn.connectError()
	}
	conn.param = conn.manager.peerParam(conn.engineConn)
	return nil
}

// Reasons of a *verbs.RejectError, with the numbers of InfiniBand. MPA has none.
const (
	reasonNone           = 0
	reasonInvalidService = 8 // invalid service ID
	reasonConsumer       = 28
)

// connectError returns the error of package verbs for a connection that ended before it was
// established. Errors of the peer and invalid data are rejections, an abort by this side (its queue
// pair may have failed) is ErrInvalid, and link errors stay as they are.
func (conn *connection) connectError() error {
	err := conn.engineConn.Err()
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case conn.qp != nil && conn.qp.gone:
		return fmt.Errorf("%w: the queue pair was closed while it was being connected", verbs.ErrClosed)
	case err == nil:
		return fmt.Errorf("%w: the connection was closed while it was being established", verbs.ErrClosed)
	case is(engine.ErrRejected):
		return &verbs.RejectError{Reason: reasonConsumer, Text: "rejected by the remote application", PrivateData: conn.engineConn.PrivateData}
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
func (conn *connection) Param() verbs.ConnParam { return conn.param }

// Remote is the peer's address.
func (conn *connection) Remote() netip.AddrPort { return conn.remote }

// Disconnect closes the connection gracefully: posted work requests complete, then the
// sending direction is closed. The queue pair accepts no more work requests, and is in the
// error state when the peer has closed its direction too.
func (conn *connection) Disconnect() error {
	return conn.manager.device.Control("disconnect", func() error {
		conn.engineConn.Disconnect(conn.manager.device.streams.Now())
		return nil
	})
}

// WaitDisconnect waits until the connection is closed or broken.
func (conn *connection) WaitDisconnect(timeout time.Duration) error {
	const op = "wait_disconnect"
	if err := conn.manager.device.Enter(op, drive.CallWait); err != nil {
		return err
	}
	defer conn.manager.device.Leave()
	return conn.manager.device.Wait(op, conn.cond, timeout, func() bool { return conn.engineConn.State() == engine.Closed })
}
