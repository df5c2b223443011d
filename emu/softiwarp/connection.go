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

// connection is a verbs.Conn, from the first octet on: it becomes one when it is
// established.
type connection struct {
	m        *manager
	c        *engine.Conn
	wire     drive.StreamConn // c, behind what is wrong with the device's wire
	qp       *queuePair       // nil until there is one
	listener *listener        // where it came in, until Next has given it out
	cond     drive.Cond
	remote   netip.AddrPort
	param    verbs.ConnParam // what the peer asked for or granted
}

// own makes a connection of the engine's c.
func (m *manager) newConnection(c *engine.Conn, qp *queuePair, remote netip.AddrPort, what string) *connection {
	x := &connection{m: m, c: c, wire: c, qp: qp, remote: remote, cond: m.d.streams.NewCond(drive.WaitReason(what))}
	if m.d.wireDefects != nil {
		x.wire = m.d.wireDefects.Conn(c, qp != nil)
	}
	c.Owner = x
	return x
}

// changed takes note of a new state.
func (x *connection) onStateChange() {
	if x.listener != nil {
		x.listener.onStateChange(x)
	}
	x.cond.Notify()
}

// established waits until both sides have the connection. One that fails, or
// takes too long, is broken.
func (x *connection) waitEstablished(timeout time.Duration) error {
	err := x.m.d.Wait("wait", x.cond, timeout, func() bool { return x.c.State() >= engine.Established })
	if err != nil {
		x.c.Abort()
		return err
	}
	if !x.c.WasEstablished() {
		return x.connectError()
	}
	x.param = x.m.peerParam(x.c)
	return nil
}

// Reasons of a *verbs.RejectError, by InfiniBand's numbers. MPA has none of its
// own.
const (
	reasonNone           = 0
	reasonInvalidService = 8 // there is no such service
	reasonConsumer       = 28
)

// failure says in the words of verbs why the connection was not made. What the
// peer is to blame for, and what a fabric can do to its words, is a rejection.
func (x *connection) connectError() error {
	err := x.c.Err()
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case x.qp != nil && x.qp.gone:
		return fmt.Errorf("%w: the queue pair, while it was being connected", verbs.ErrClosed)
	case err == nil:
		return fmt.Errorf("%w: the connection, while it was being made", verbs.ErrClosed)
	case is(engine.ErrRejected):
		return &verbs.RejectError{Reason: reasonConsumer, Text: "the application there refused", PrivateData: x.c.PrivateData()}
	case is(link.ErrRefused):
		return &verbs.RejectError{Reason: reasonInvalidService, Text: "nobody listens there"}
	case is(mpa.ErrEOF, link.ErrReset):
		return &verbs.RejectError{Reason: reasonNone, Text: "the peer hung up without an answer"}
	case is(mpa.ErrTimeout, engine.ErrCloseTimeout):
		return fmt.Errorf("%w: %w", verbs.ErrTimeout, err)
	case is(engine.ErrCutOff):
		return fmt.Errorf("%w: %w", verbs.ErrInvalid, err)
	case is(link.ErrUnreachable, link.ErrAddrInUse, link.ErrLimit, link.ErrClosed):
		return err // connError has words for them
	case is(engine.ErrTerminated):
		return fmt.Errorf("%w: %w", &verbs.RejectError{Reason: reasonNone, Text: "the first message failed"}, err)
	}
	return fmt.Errorf("%w: %w", &verbs.RejectError{Reason: reasonNone, Text: "what came from the peer cannot be taken"}, err)
}

// Param is what the peer granted or asked for.
func (x *connection) Param() verbs.ConnParam { return x.param }

// Remote is the peer's address.
func (x *connection) Remote() netip.AddrPort { return x.remote }

// Disconnect closes the connection in order: what was posted is carried out, then
// our direction ends. The queue pair takes nothing more, and is in the error
// state when the peer has closed its side too.
func (x *connection) Disconnect() error {
	return x.m.d.Control("disconnect", func() error {
		x.c.Disconnect(x.m.d.streams.Now())
		return nil
	})
}

// WaitDisconnect waits until the connection has ended, in order or not.
func (x *connection) WaitDisconnect(timeout time.Duration) error {
	const op = "wait_disconnect"
	if err := x.m.d.Enter(op, drive.CallWait); err != nil {
		return err
	}
	defer x.m.d.Leave()
	return x.m.d.Wait(op, x.cond, timeout, func() bool { return x.c.State() == engine.Closed })
}
