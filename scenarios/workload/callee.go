package workload

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// callee answers the calls.
type callee struct {
	*calls
	requests, lookups verbs.Listener
	early             verbs.ConnRequest // came before the end of the call before it
	next              int               // the call expected next
	done              bool              // the caller has said so
}

func (c *callee) run() error {
	c.enter("listening")
	entry, err := c.nic.Device.QueryGID(1, int(c.nic.GIDIndex))
	if err != nil {
		return err
	}
	addr := entry.GID.Addr()
	if c.requests, err = c.cm.Listen(netip.AddrPortFrom(addr, callPort), verbs.PortSpaceTCP, 0); err != nil {
		return err
	}
	if c.ud {
		if c.lookups, err = c.cm.Listen(netip.AddrPortFrom(addr, lookupPort), verbs.PortSpaceUDP, 0); err != nil {
			return err
		}
	}
	if err := c.tell(addr.String()); err != nil {
		return err
	}
	err = errors.Join(c.serve(), c.requests.Close())
	if c.ud {
		err = errors.Join(err, c.lookups.Close())
	}
	return err
}

// serve answers until the caller is done.
func (c *callee) serve() error {
	wait := c.tick()
	for {
		c.enter("waiting for call %d", c.next)
		answered, err := c.answerNext(wait)
		if err != nil {
			return err
		}
		// Lookups come to another listener, and only at the beginning.
		if wait = min(2*wait, maxTicks*c.tick()); answered || c.next == 0 {
			wait = c.tick()
		}
		word, err := c.glance()
		if err != nil {
			return err
		}
		if word == wordDone || c.done {
			return c.finish()
		}
	}
}

// answerNext answers a lookup or a call, if one comes in time.
func (c *callee) answerNext(wait time.Duration) (bool, error) {
	if c.ud {
		if r, err := c.lookups.GetRequest(0); err == nil {
			c.moved()
			return true, c.answerLookup(r)
		}
	}
	r, err := c.early, error(nil)
	if c.early = nil; r == nil {
		r, err = c.requests.GetRequest(wait)
	}
	if errors.Is(err, verbs.ErrTimeout) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.moved()
	if err := c.answer(r); !errors.Is(err, errBroken) {
		return true, err
	}
	return true, nil
}

func (c *callee) answerLookup(r verbs.ConnRequest) error {
	p, err := c.newPhone(verbs.QPTypeUD)
	if err != nil {
		return err
	}
	if _, err := r.Accept(p.qp, verbs.ConnParam{}, callTimeout); err != nil && !c.fabricFailed(err) {
		return err
	}
	return p.close()
}

// answer takes a call: the next one, or one that broke off.
func (c *callee) answer(r verbs.ConnRequest) (err error) {
	g, err := greetingIn(r.Param().PrivateData)
	if err != nil {
		return err
	}
	again := g.Call == c.next-1 && c.cfg.Reconnect // its end was not heard
	if g.Call != c.next && !again {
		c.violation(Connection, "a request for call %d, after %d", g.Call, c.next-1)
		return r.Reject(nil)
	}
	c.enter("call %d, accepting", g.Call)
	p, err := c.newPhone(verbs.QPTypeRC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	param := c.param()
	param.PrivateData = greeting{g.Call, g.Try, c.heard}.bytes()
	conn, err := r.Accept(p.qp, param, callTimeout)
	if err != nil {
		if c.fabricFailed(err) {
			return errBroken
		}
		return err
	}
	c.live.add(p.qp)
	c.moved()
	if g.Try > 0 {
		c.log.reconnects++
		c.log.mark("reconnected %s", hostOf(c.peer))
	}
	if g.Call == 0 && g.Try == 0 {
		c.log.mark("connected")
	}
	return c.converse(p, conn, g)
}

func (c *callee) converse(p *phone, conn verbs.Conn, g greeting) error {
	end := g.Call*c.cfg.Depth + c.inCall(g.Call)
	if g.Heard < c.heard { // the last answer was lost
		if err := p.say(c.heard - 1); err != nil {
			return err
		}
	}
	for c.heard < end {
		c.enter("call %d, message %d", g.Call, c.heard)
		if err := p.listen(c.heard); err != nil {
			return err
		}
		if err := p.say(c.heard - 1); err != nil {
			return err
		}
	}
	c.next = g.Call + 1
	// The other end hangs up when it has heard everything.
	c.enter("call %d, waiting for its end", g.Call)
	over, err := c.waitForEnd(p, conn)
	if over {
		c.flow.Acked = c.heard
	}
	return err
}

// waitForEnd waits until the caller hangs up. If it has gone on to the next
// call, or says that it has made them all, its word is only late.
func (c *callee) waitForEnd(p *phone, conn verbs.Conn) (over bool, err error) {
	for {
		err := conn.WaitDisconnect(c.tick() * maxTicks)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, verbs.ErrTimeout) {
			return false, err
		}
		if c.early, err = c.requests.GetRequest(0); err == nil {
			return true, nil
		}
		word, err := c.glance()
		if c.done = word == wordDone; c.done || err != nil {
			return c.done, err
		}
		broken, err := p.broken()
		if err != nil {
			return false, err
		}
		if broken && conn.WaitDisconnect(0) != nil {
			p.fail(verbs.WCWRFlushErr)
			return false, errBroken
		}
	}
}

// finish looks for calls that nobody made.
func (c *callee) finish() error {
	c.enter("looking for calls that nobody made")
	if c.next != c.calls.calls {
		c.violation(Connection, "%d calls came in, the other end made %d", c.next, c.calls.calls)
	}
	if r, err := c.requests.GetRequest(c.tick()); err == nil {
		c.violation(Connection, "a call from %v that nobody made, with %q", r.Remote(), trimmed(r.Param().PrivateData))
	} else if !errors.Is(err, verbs.ErrTimeout) {
		return err
	}
	c.enter("done")
	return nil
}
