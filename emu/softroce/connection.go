package softroce

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/verbs"
)

// connection implements verbs.Conn. It exists from the first message on.
type connection struct {
	m      *manager
	id     cm.ConnID
	qp     *qpState // nil for a SIDR request
	cond   drive.Cond
	remote netip.AddrPort
	param  verbs.ConnParam // from the peer's REQ or REP
	events []cm.Event
	ended  bool // either side has disconnected

	// The starting PSN in a REQ or REP is the first PSN that its sender expects.
	recvPSN     uint32 // in our message
	sendPSN     uint32 // in the peer's message
	gidIndex    uint8
	timeoutCode uint8
}

// awaitEvent waits for the next event of the connection, but ignores EventMRA and EventTimeWaitExit.
// It returns an error if the event is not of the kind want, or if the connection has ended. A
// negative timeout means forever. The caller holds the device's lock.
func (c *connection) awaitEvent(want cm.EventKind, timeout time.Duration) (cm.Event, error) {
	ignored := func(e cm.Event) bool { return e.Kind == cm.EventMRA || e.Kind == cm.EventTimeWaitExit }
	err := c.m.d.Wait("wait", c.cond, timeout, func() bool {
		c.events = slices.DeleteFunc(c.events, ignored)
		return len(c.events) > 0 || c.ended
	})
	if err != nil {
		return cm.Event{}, err
	}
	if len(c.events) == 0 {
		return cm.Event{}, fmt.Errorf("%w: the queue pair was destroyed while it was being connected", verbs.ErrClosed)
	}
	e := c.events[0]
	c.events = c.events[1:]
	switch e.Kind {
	case want:
		return e, nil
	case cm.EventRejected:
		return e, &verbs.RejectError{Reason: uint16(e.Reason), Text: e.Reason.String(), PrivateData: e.PrivateData}
	case cm.EventTimedOut:
		return e, fmt.Errorf("%w: no answer in state %v", verbs.ErrTimeout, e.State)
	}
	return e, fmt.Errorf("%w: connection ended by %v", verbs.ErrClosed, e.Kind)
}

// awaitReply waits for the REP of the passive side, moves the queue pair to RTS and sends the RTU.
// requested are the parameters of the REQ. If a step fails, it closes the connection.
func (c *connection) awaitReply(requested verbs.ConnParam, timeout time.Duration) error {
	e, err := c.awaitEvent(cm.EventReply, timeout)
	if err == nil {
		err = c.confirm(e, requested)
	}
	if err != nil {
		c.m.closeConn(c)
	}
	return err
}

// confirm moves the queue pair to RTR and RTS, with the parameters of the REP in e and of our REQ,
// and sends the RTU.
func (c *connection) confirm(e cm.Event, requested verbs.ConnParam) error {
	r := e.Reply
	c.param = verbs.ConnParam{
		PrivateData: e.PrivateData, ResponderResources: r.RespRes, InitiatorDepth: r.InitDepth,
		RetryCount: requested.RetryCount, RNRRetryCount: r.RNRRetry, FlowControl: r.E2EFlow,
	}
	if err := c.toRTR(r.RemoteQPN, r.StartPSN, c.m.d.nic.MTU(), requested.ResponderResources); err != nil {
		return err
	}
	if err := c.toRTS(requested.RetryCount, r.RNRRetry, min(requested.InitiatorDepth, r.RespRes)); err != nil {
		return err
	}
	return c.m.activateAgent().ConfirmReply(c.m.d.Driver().Now(), c.id, nil)
}

// modify modifies the attributes of the queue pair that mask names.
func (c *connection) modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return c.qp.q.Modify(c.m.d.Driver().Now(), a, mask)
}

const remoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// toInit moves the queue pair to INIT, if it is not in INIT already.
func (c *connection) toInit() error {
	if c.qp.q.State() == verbs.QPStateInit {
		return nil
	}
	return c.modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: remoteAccess},
		verbs.QPAttrState|verbs.QPAttrPort|verbs.QPAttrPKeyIndex|verbs.QPAttrAccessFlags)
}

// toRTR moves the queue pair to RTR. qpn and sendPSN are the QP number and the starting PSN in the
// peer's REQ or REP. That PSN is the first one that the peer expects: toRTS uses it.
func (c *connection) toRTR(qpn, sendPSN uint32, mtu verbs.MTU, responderResources uint8) error {
	c.sendPSN = sendPSN
	a := verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: mtu, DestQPN: verbs.QPN(qpn), RQPSN: c.recvPSN,
		AH:              verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.remote.Addr()), SGIDIndex: c.gidIndex, HopLimit: 64}},
		MaxDestRdAtomic: responderResources, MinRNRTimer: connMinRNRTimer,
	}
	mask := verbs.QPAttrState | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN | verbs.QPAttrAV
	if c.qp.Type() != verbs.QPTypeUC {
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	return c.modify(a, mask)
}

// toRTS moves the queue pair to RTS. retry and rnrRetry are retry counts of three bits.
func (c *connection) toRTS(retry, rnrRetry, initiatorDepth uint8) error {
	a := verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: c.sendPSN, Timeout: c.timeoutCode,
		RetryCnt: retry & 7, RNRRetry: rnrRetry & 7, MaxRdAtomic: initiatorDepth,
	}
	mask := verbs.QPAttrState | verbs.QPAttrSQPSN
	if c.qp.Type() != verbs.QPTypeUC {
		mask |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	}
	return c.modify(a, mask)
}

// toError marks the connection as ended, moves its queue pair, unless in RESET, to the error state,
// which flushes the work requests, and wakes blocked calls.
func (c *connection) toError(now mono.Time) {
	c.ended = true
	if c.qp != nil && c.qp.q.State() != verbs.QPStateReset {
		_ = c.qp.q.Modify(now, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
	}
	c.cond.Notify()
}

// Param returns the parameters of the peer's REQ or REP.
func (c *connection) Param() verbs.ConnParam { return c.param }

// Remote returns the peer's address.
func (c *connection) Remote() netip.AddrPort { return c.remote }

// Disconnect implements verbs.Conn: it sends a DREQ, and moves the queue pair to the error state.
// It does nothing if either side has disconnected before.
func (c *connection) Disconnect() error {
	return c.m.d.Control("disconnect", func() error {
		if c.ended {
			return nil
		}
		now := c.m.d.Driver().Now()
		err := c.m.activateAgent().Disconnect(now, c.id, nil)
		c.toError(now)
		if err != nil {
			return connError("disconnect", c.remote, err)
		}
		return nil
	})
}

// WaitDisconnect waits until either side has disconnected.
func (c *connection) WaitDisconnect(timeout time.Duration) error {
	if err := c.m.d.Enter("wait_disconnect", drive.CallWait); err != nil {
		return err
	}
	defer c.m.d.Leave()
	return c.m.d.Wait("wait_disconnect", c.cond, timeout, func() bool { return c.ended })
}
