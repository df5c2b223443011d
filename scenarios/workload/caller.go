package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// greeting is the private data of a request, and of the reply to it.
type greeting struct {
	Call  int `json:"c"`
	Try   int `json:"t"`
	Heard int `json:"h"` // messages, of all calls
}

func (g greeting) bytes() []byte {
	b, err := json.Marshal(g)
	if err != nil {
		panic(err) // three numbers
	}
	return b
}

func greetingIn(private []byte) (g greeting, err error) {
	if err := json.Unmarshal([]byte(trimmed(private)), &g); err != nil {
		return g, fmt.Errorf("private data %q: %w", trimmed(private), err)
	}
	return g, nil
}

// caller makes the calls.
type caller struct {
	*calls
	addr netip.Addr // of the peer
}

func (c *caller) run() error {
	c.enter("waiting for %s to listen", hostOf(c.peer))
	if err := c.findPeer(); err != nil {
		return err
	}
	c.enter("calling port %d, where nobody listens", deadPort)
	if err := c.expectRefusal(); err != nil {
		return err
	}
	if c.ud {
		c.enter("resolving the datagram service of port %d", lookupPort)
		if err := c.resolve(); err != nil {
			return err
		}
	}
	for i := range c.calls.calls {
		if err := c.callUntilHeard(i); err != nil {
			return err
		}
		if c.cfg.Think > 0 {
			c.enter("between calls %d and %d", i, i+1)
			c.rank.Proc.Sleep(c.cfg.Think)
		}
	}
	c.enter("done")
	return c.tell(wordDone)
}

// findPeer waits until the peer says where it listens.
func (c *caller) findPeer() error {
	for {
		word, err := c.glance()
		if err != nil {
			return err
		}
		if word != "" {
			return c.addr.UnmarshalText([]byte(word))
		}
		c.rank.Proc.Sleep(c.tick())
	}
}

// expectRefusal makes a call that must be refused, and for the right reason.
func (c *caller) expectRefusal() error {
	p, err := c.newPhone(verbs.QPTypeRC)
	if err != nil {
		return err
	}
	err = c.whenFree(func() error {
		_, err := c.cm.Connect(p.qp, netip.AddrPortFrom(c.addr, deadPort), c.param(), callTimeout)
		return err
	})
	var refused *verbs.RejectError
	switch {
	case err == nil:
		c.violation(Connection, "a call to port %d, where nobody listens, was answered", deadPort)
	case errors.As(err, &refused):
		if refused.Reason != noSuchPort {
			c.violation(Connection, "a call to port %d, where nobody listens, was refused for reason %d, not %d", deadPort, refused.Reason, noSuchPort)
		}
	case !c.fabricFailed(err):
		return err
	}
	c.moved()
	return p.close()
}

func (c *caller) resolve() error {
	var found verbs.DatagramPeer
	err := c.whenFree(func() (err error) {
		found, err = c.cm.Resolve(netip.AddrPortFrom(c.addr, lookupPort), nil, callTimeout)
		return err
	})
	switch {
	case err == nil && found.QKey != lookupQKey:
		c.violation(Connection, "the datagram service of port %d has Q_Key %#x, not %#x", lookupPort, found.QKey, lookupQKey)
	case err != nil && !c.fabricFailed(err):
		return err
	}
	c.moved()
	return nil
}

// callUntilHeard makes call i, as often as it takes.
func (c *caller) callUntilHeard(i int) error {
	for try := 0; ; try++ {
		if try > 0 {
			// Let the fabric mend, and see whether the other end is still there.
			c.rank.Proc.Sleep(min(firstBackoff<<min(try, 20), lastBackoff))
			if _, err := c.glance(); err != nil {
				return err
			}
		}
		err := c.call(i, try)
		if err == nil && try > 0 {
			c.log.reconnects++
			c.log.mark("reconnected %s", hostOf(c.peer))
		}
		if !errors.Is(err, errBroken) {
			return err
		}
		if !c.cfg.Reconnect || try == maxTries {
			return errors.Join(errHungUp, c.tell(wordGaveUp))
		}
	}
}

// call makes call i once.
func (c *caller) call(i, try int) (err error) {
	c.enter("call %d, connecting", i)
	p, err := c.newPhone(verbs.QPTypeRC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	param := c.param()
	param.PrivateData = greeting{i, try, c.heard}.bytes()
	began := c.rank.Proc.Now()
	var conn verbs.Conn
	err = c.whenFree(func() (err error) {
		conn, err = c.cm.Connect(p.qp, netip.AddrPortFrom(c.addr, callPort), param, callTimeout)
		return err
	})
	if err != nil {
		if c.fabricFailed(err) {
			return errBroken
		}
		return err
	}
	c.live.add(p.qp)
	c.moved()
	c.setup.add(c.rank.Proc.Now() - began)
	if i == 0 && try == 0 {
		c.log.mark("connected")
	}
	reply, err := greetingIn(conn.Param().PrivateData)
	if err != nil {
		return err
	}
	if reply.Heard != c.heard && reply.Heard != c.heard+1 {
		c.violation(Delivery, "the other end has heard %d messages after %d answers", reply.Heard, c.heard)
	}
	end := i*c.cfg.Depth + c.inCall(i)
	c.said = reply.Heard
	for c.heard < end {
		c.enter("call %d, message %d", i, c.heard)
		if c.said == c.heard {
			if err := p.say(c.heard); err != nil {
				return err
			}
			c.said++
		}
		if err := p.listen(c.heard); err != nil {
			return err
		}
		c.flow.Acked++ // the answer proves it
	}
	c.enter("call %d, disconnecting", i)
	return conn.Disconnect()
}
