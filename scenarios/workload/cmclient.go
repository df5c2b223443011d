package workload

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// privateData is the private data of a connection request and reply.
type privateData struct {
	call, try int
	received  int // messages, over all calls
}

// bytes encodes the private data.
func (d privateData) bytes() []byte { return fmt.Appendf(nil, "%d/%d/%d", d.call, d.try, d.received) }

// parsePrivateData decodes the private data of a connection request or reply: the numbers of the
// call (a connection with some messages) and of the attempt at it, and how many messages the sender
// has received. The CM may pad it.
func parsePrivateData(private []byte) (d privateData, err error) {
	if _, err := fmt.Sscanf(trimPadding(private), "%d/%d/%d", &d.call, &d.try, &d.received); err != nil {
		return d, fmt.Errorf("private data %q: %w", trimPadding(private), err)
	}
	return d, nil
}

// cmClient makes the calls. A call is a connection, some messages on it, and a disconnection.
type cmClient struct {
	*cmEndpoint
	addr netip.Addr // of the peer
}

// run tries to connect to a closed port, resolves the datagram service (SIDR) if ud is set, and
// then makes the calls one after the other. A call is a connection with some messages in turn, and
// its disconnection.
func (c *cmClient) run() error {
	c.setStatus("waiting for %s to listen", hostOf(c.peer))
	if err := c.awaitPeerAddr(); err != nil {
		return err
	}
	c.setStatus("connecting to port %d, which is closed", closedPort)
	if err := c.expectReject(); err != nil {
		return err
	}
	if c.ud {
		c.setStatus("resolving the datagram service of port %d", sidrPort)
		if err := c.resolve(); err != nil {
			return err
		}
	}
	for i := range c.totalCalls {
		if err := c.callWithRetries(i); err != nil {
			return err
		}
		if c.cfg.Think > 0 {
			c.setStatus("between calls %d and %d", i, i+1)
			c.proc.Sleep(c.cfg.Think)
		}
	}
	c.setStatus("done")
	return c.sendControl(controlDone)
}

// awaitPeerAddr waits until the server reports its address.
func (c *cmClient) awaitPeerAddr() error {
	for {
		message, err := c.pollControl()
		if err != nil {
			return err
		}
		if message != "" {
			return c.addr.UnmarshalText([]byte(message))
		}
		c.proc.Sleep(c.tick())
	}
}

// expectReject requests a connection to a closed port. The request must be rejected with reason 8,
// invalid service ID. An error that faults of the fabric can cause is only recorded.
func (c *cmClient) expectReject() error {
	p, err := c.newCallQP(verbs.QPTypeRC)
	if err != nil {
		return err
	}
	err = c.retryWhileFull(func() error {
		_, err := c.cm.Connect(p.qp, netip.AddrPortFrom(c.addr, closedPort), c.param(), callTimeout)
		return err
	})
	var refused *verbs.RejectError
	switch {
	case err == nil:
		c.violation(traffic.Connection, "a request to port %d, which is closed, was accepted", closedPort)
	case errors.As(err, &refused):
		if refused.Reason != rejectInvalidServiceID {
			c.violation(traffic.Connection, "a request to port %d, which is closed, was rejected with reason %d, not %d", closedPort, refused.Reason, rejectInvalidServiceID)
		}
	case !c.recordFabricError(err):
		return err
	}
	c.noteProgress()
	return p.close()
}

// resolve resolves the server's datagram service (SIDR), and checks its Q_Key. An error that faults
// of the fabric can cause is only recorded.
func (c *cmClient) resolve() error {
	var found verbs.DatagramPeer
	err := c.retryWhileFull(func() (err error) {
		found, err = c.cm.Resolve(netip.AddrPortFrom(c.addr, sidrPort), nil, callTimeout)
		return err
	})
	switch {
	case err == nil && found.QKey != sidrQKey:
		c.violation(traffic.Connection, "the datagram service of port %d has Q_Key %#x, not %#x", sidrPort, found.QKey, sidrQKey)
	case err != nil && !c.recordFabricError(err):
		return err
	}
	c.noteProgress()
	return nil
}

// callWithRetries makes call i, a connection with some messages, until it succeeds. Without
// Reconnect, or after maxRetries, it sends controlGaveUp to the server, and returns errPeerEnded.
func (c *cmClient) callWithRetries(i int) error {
	const maxRetries = 60 // of one call
	for try := 0; ; try++ {
		if try > 0 {
			// Give the fabric time to recover, and check that the server is still there.
			c.proc.Sleep(min(firstBackoff<<min(try, maxBackoffShift), lastBackoff))
			if _, err := c.pollControl(); err != nil {
				return err
			}
		}
		err := c.call(i, try)
		if err == nil && try > 0 {
			c.log.reconnects++
			c.log.mark("reconnected %s", hostOf(c.peer))
		}
		if !errors.Is(err, errCallBroken) {
			return err
		}
		if !c.cfg.Reconnect || try == maxRetries {
			return errors.Join(errPeerEnded, c.sendControl(controlGaveUp))
		}
	}
}

// call makes call i once: it connects, exchanges the messages of the call that earlier attempts did
// not, and disconnects.
func (c *cmClient) call(i, try int) (err error) {
	c.setStatus("call %d, connecting", i)
	p, err := c.newCallQP(verbs.QPTypeRC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	param := c.param()
	param.PrivateData = privateData{i, try, c.received}.bytes()
	began := c.proc.Now()
	var conn verbs.Conn
	err = c.retryWhileFull(func() (err error) {
		conn, err = c.cm.Connect(p.qp, netip.AddrPortFrom(c.addr, callPort), param, callTimeout)
		return err
	})
	if err != nil {
		return c.callError(err)
	}
	c.live.add(p.qp) // so that Break can move it to the error state
	c.noteProgress()
	c.connectTimes.Add(c.proc.Now() - began)
	if i == 0 && try == 0 {
		c.log.mark("connected")
	}
	reply, err := parsePrivateData(conn.Param().PrivateData)
	if err != nil {
		return err
	}
	if reply.received != c.received && reply.received != c.received+1 { // an answer may have been lost
		c.violation(traffic.Delivery, "the server has received %d messages after %d answers", reply.received, c.received)
	}
	end := i*c.cfg.Depth + c.messagesInCall(i) // messages of all calls so far: earlier calls have Depth each
	c.sent = reply.received                    // the server repeats a lost answer by itself
	for c.received < end {
		c.setStatus("call %d, message %d", i, c.received)
		if c.sent == c.received {
			if err := p.send(c.received); err != nil {
				return err
			}
			c.sent++
		}
		if err := p.receive(c.received); err != nil {
			return err
		}
		c.flow.Acked++ // the answer acknowledges it
	}
	c.setStatus("call %d, disconnecting", i)
	return conn.Disconnect()
}
