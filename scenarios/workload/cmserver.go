package workload

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// cmServer accepts the connections of the client.
type cmServer struct {
	*cmEndpoint
	listener, udListener verbs.Listener
	nextRequest          verbs.ConnRequest // received before the current call has ended
	nextCall             int
	clientDone           bool // the client has made all calls
}

// run listens, sends its address to the client, and serves calls: connections with some messages.
func (c *cmServer) run() error {
	c.setStatus("listening")
	entry, err := c.nic.Device.QueryGID(1, int(c.nic.GIDIndex))
	if err != nil {
		return err
	}
	addr := entry.GID.Addr()
	if c.listener, err = c.cm.Listen(netip.AddrPortFrom(addr, callPort), verbs.PortSpaceTCP, defaultBacklog); err != nil {
		return err
	}
	if c.ud {
		if c.udListener, err = c.cm.Listen(netip.AddrPortFrom(addr, sidrPort), verbs.PortSpaceUDP, defaultBacklog); err != nil {
			return err
		}
	}
	if err := c.sendControl(addr.String()); err != nil {
		return err
	}
	err = errors.Join(c.serve(), c.listener.Close())
	if c.ud {
		err = errors.Join(err, c.udListener.Close())
	}
	return err
}

// serve handles connection and SIDR requests until the client says that it has made all calls.
func (c *cmServer) serve() error {
	wait := c.tick()
	for {
		c.setStatus("waiting for call %d", c.nextCall)
		answered, err := c.handleNext(wait)
		if err != nil {
			return err
		}
		// While there are no requests, wait longer and longer. Before the first call do not: SIDR
		// requests arrive then, at another listener than the one waited for.
		if answered || c.nextCall == 0 {
			wait = c.tick()
		} else {
			wait = min(2*wait, maxTicks*c.tick())
		}
		message, err := c.pollControl()
		if err != nil {
			return err
		}
		if message == controlDone || c.clientDone {
			return c.checkCallCount()
		}
	}
}

// handleNext answers a SIDR request that has arrived, or else serves the call of a connection
// request, c.nextRequest or one that arrives within wait. It reports whether there was a request.
func (c *cmServer) handleNext(wait time.Duration) (bool, error) {
	if c.ud {
		if r, err := c.udListener.GetRequest(0); err == nil {
			c.noteProgress()
			return true, c.acceptSIDR(r)
		}
	}
	r, err := c.nextRequest, error(nil)
	c.nextRequest = nil
	if r == nil {
		r, err = c.listener.GetRequest(wait)
	}
	if errors.Is(err, verbs.ErrTimeout) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.noteProgress()
	if err := c.accept(r); !errors.Is(err, errCallBroken) {
		return true, err
	}
	return true, nil
}

// acceptSIDR answers a SIDR request with a new UD queue pair, and closes it: the client resolves
// its number, but sends nothing to it. Errors that fabric faults can cause are only recorded.
func (c *cmServer) acceptSIDR(r verbs.ConnRequest) error {
	p, err := c.newCallQP(verbs.QPTypeUD)
	if err != nil {
		return err
	}
	if _, err = r.Accept(p.qp, verbs.ConnParam{}, callTimeout); err != nil && c.recordFabricError(err) {
		err = nil
	}
	return errors.Join(err, p.close())
}

// accept accepts a connection request for the next call, or again for the last one if the client's
// connection broke, and exchanges the messages of the call. It rejects other requests.
func (c *cmServer) accept(r verbs.ConnRequest) (err error) {
	asked, err := parsePrivateData(r.Param().PrivateData)
	if err != nil {
		return err
	}
	again := asked.call == c.nextCall-1 && c.cfg.Reconnect // the client repeats a call that was complete here
	if asked.call != c.nextCall && !again {
		c.violation(traffic.Connection, "a request for call %d, after %d", asked.call, c.nextCall-1)
		return r.Reject(nil)
	}
	c.setStatus("call %d, accepting", asked.call)
	p, err := c.newCallQP(verbs.QPTypeRC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	param := c.param()
	param.PrivateData = privateData{asked.call, asked.try, c.received}.bytes()
	conn, err := r.Accept(p.qp, param, callTimeout)
	if err != nil {
		return c.callError(err)
	}
	c.live.add(p.qp) // so that Break can move it to the error state
	c.noteProgress()
	if asked.try > 0 {
		c.log.reconnects++
		c.log.mark("reconnected %s", hostOf(c.peer))
	}
	if asked.call == 0 && asked.try == 0 {
		c.log.mark("connected")
	}
	return c.exchangeMessages(p, conn, asked)
}

// exchangeMessages receives and answers the messages of a call, which is one connection with up to
// Depth messages, and waits for the client's disconnect.
func (c *cmServer) exchangeMessages(p *callQP, conn verbs.Conn, asked privateData) error {
	end := asked.call*c.cfg.Depth + c.messagesInCall(asked.call)
	if asked.received < c.received { // our last answer was lost
		if err := p.send(c.received - 1); err != nil {
			return err
		}
	}
	for c.received < end {
		c.setStatus("call %d, message %d", asked.call, c.received)
		if err := p.receive(c.received); err != nil { // it increments c.received
			return err
		}
		if err := p.send(c.received - 1); err != nil {
			return err
		}
	}
	c.nextCall = asked.call + 1
	// The client disconnects when it has received everything.
	c.setStatus("call %d, waiting for its end", asked.call)
	over, err := c.waitDisconnect(p, conn)
	if over {
		c.flow.Acked = c.received
	}
	return err
}

// waitDisconnect waits until the client disconnects. It also returns true if the client has made
// all calls, or has requested the next (c.nextRequest): the disconnect of this call is then only
// late. over is false if the connection broke.
func (c *cmServer) waitDisconnect(p *callQP, conn verbs.Conn) (over bool, err error) {
	for {
		err := conn.WaitDisconnect(c.tick() * maxTicks)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, verbs.ErrTimeout) {
			return false, err
		}
		if c.nextRequest, err = c.listener.GetRequest(0); err == nil {
			return true, nil
		}
		message, err := c.pollControl()
		c.clientDone = message == controlDone
		if c.clientDone || err != nil {
			return c.clientDone, err
		}
		broken, err := p.pollFailed()
		if err != nil {
			return false, err
		}
		// A disconnect, too, flushes the receives: if it has arrived meanwhile, the next turn sees it.
		if broken && conn.WaitDisconnect(0) != nil {
			p.fail(verbs.WCWRFlushErr)
			return false, errCallBroken
		}
	}
}

// checkCallCount reports calls that are missing, and requests that the client did not send.
func (c *cmServer) checkCallCount() error {
	c.setStatus("looking for unexpected requests")
	if c.nextCall != c.totalCalls {
		c.violation(traffic.Connection, "%d calls arrived, the client made %d", c.nextCall, c.totalCalls)
	}
	if r, err := c.listener.GetRequest(c.tick()); err == nil {
		c.violation(traffic.Connection, "an unexpected request from %v with private data %q", r.Remote(), trimPadding(r.Param().PrivateData))
	} else if !errors.Is(err, verbs.ErrTimeout) {
		return err
	}
	c.setStatus("done")
	return nil
}
