package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Calls are connections made by the connection manager, one after the other,
// with a few messages each way. They show what traffic over queue pairs that
// are connected by hand cannot: requests, refusals, replies, the end of a
// connection and what is left of it.

const (
	messagesPerCall = 5
	// callGap lies between two calls. It is longer than a connection stays in
	// time wait, so that a sound manager never holds many.
	callGap = 10 * time.Second
	// callsHeld is how many connections a manager may hold, those in time wait
	// included: one that leaks them runs out after as many calls.
	callsHeld = 16
	// maxCallTime bounds the virtual time: a manager gives up on its peer after
	// 70 s, and a long run makes ten thousand calls.
	maxCallTime = 100 * time.Hour

	callPort     = 4000
	lookupPort   = 4001 // a datagram service
	deadPort     = 4002 // nobody listens here
	lookupQKey   = 0x1234567
	noSuchPort   = 8 // the reason with which its requests are refused
	maxCallBytes = 4 << 10
)

var callParam = verbs.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// callEnd is what the two ends of a call have in common.
type callEnd struct {
	dev   verbs.Context
	cm    verbs.CM
	addr  netip.Addr // of the callee
	peer  traffic.Exchange
	seed  uint64
	side  uint64 // 0 calls, 1 is called
	total int    // messages each way
	phase string
	done  tally
}

type caller struct{ callEnd }

type callee struct{ callEnd }

func newCall(f *fabric, s *scenario, flow [2]int, pipe [2]traffic.Exchange, seed uint64, messages int) (*caller, *callee) {
	end := func(side int) callEnd {
		return callEnd{
			dev: f.hosts[flow[side]], addr: hostAddr(s.network.ipv4, flow[1]), peer: pipe[side],
			seed: seed, side: uint64(side), total: messages, phase: "not started",
		}
	}
	return &caller{end(0)}, &callee{end(1)}
}

func (e *callEnd) status() string { return e.phase }

func (e *callEnd) tally() tally {
	t := e.done
	t.asked = e.total
	return t
}

func (e *callEnd) enter(format string, args ...any) { e.phase = fmt.Sprintf(format, args...) }

// fail says during what an error came.
func (e *callEnd) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", e.phase, err)
}

// calls is how many there are, and in each says how many messages it has.
func (e *callEnd) calls() int { return (e.total + messagesPerCall - 1) / messagesPerCall }

func (e *callEnd) inCall(i int) int { return min(messagesPerCall, e.total-i*messagesPerCall) }

func (c *caller) run(p *sim.Proc) (err error) {
	if c.cm, err = c.dev.CM(); err != nil {
		return err
	}
	c.enter("waiting for the other end to listen")
	if _, err := c.peer.Recv(verbs.Forever); err != nil {
		return c.fail(err)
	}
	c.enter("calling port %d, where nobody listens", deadPort)
	if err := c.expectRefusal(); err != nil {
		return c.fail(err)
	}
	c.enter("resolving the datagram service of port %d", lookupPort)
	if err := c.resolve(); err != nil {
		return c.fail(err)
	}
	for i := range c.calls() {
		began := p.Now()
		if err := c.call(i); err != nil {
			return c.fail(err)
		}
		c.done.elapsed += p.Now() - began
		c.enter("between calls %d and %d", i, i+1)
		p.Sleep(callGap)
	}
	c.enter("done")
	return nil
}

// expectRefusal makes a call that must be refused, and for the right reason.
func (c *caller) expectRefusal() error {
	phone, err := newPhone(&c.callEnd)
	if err != nil {
		return err
	}
	_, err = c.cm.Connect(phone.qp, netip.AddrPortFrom(c.addr, deadPort), callParam, verbs.Forever)
	var refused *verbs.RejectError
	if !errors.As(err, &refused) || refused.Reason != noSuchPort {
		return fmt.Errorf("want a refusal with reason %d, got %w", noSuchPort, orSuccess(err))
	}
	return phone.close()
}

func orSuccess(err error) error {
	if err == nil {
		return errors.New("a connection")
	}
	return err
}

func (c *caller) resolve() error {
	found, err := c.cm.Resolve(netip.AddrPortFrom(c.addr, lookupPort), nil, verbs.Forever)
	if err != nil {
		return err
	}
	if found.QKey != lookupQKey {
		return fmt.Errorf("its Q_Key is %#x, want %#x", found.QKey, lookupQKey)
	}
	return nil
}

func (c *caller) call(i int) error {
	c.enter("call %d, connecting", i)
	phone, err := newPhone(&c.callEnd)
	if err != nil {
		return err
	}
	param := callParam
	param.PrivateData = callName(i)
	conn, err := c.cm.Connect(phone.qp, netip.AddrPortFrom(c.addr, callPort), param, verbs.Forever)
	if err != nil {
		return err
	}
	for k := range c.inCall(i) {
		c.enter("call %d, message %d", i, k)
		if err := phone.say(i, k); err != nil {
			return err
		}
		if err := phone.hear(i, k); err != nil {
			return err
		}
	}
	c.enter("call %d, disconnecting", i)
	return errors.Join(conn.Disconnect(), phone.close())
}

func (c *callee) run(*sim.Proc) (err error) {
	if c.cm, err = c.dev.CM(); err != nil {
		return err
	}
	c.enter("listening")
	calls, err := c.cm.Listen(netip.AddrPortFrom(c.addr, callPort), verbs.PortSpaceTCP, 0)
	if err != nil {
		return c.fail(err)
	}
	lookups, err := c.cm.Listen(netip.AddrPortFrom(c.addr, lookupPort), verbs.PortSpaceUDP, 0)
	if err != nil {
		return c.fail(err)
	}
	if err := c.peer.Send([]byte("listening")); err != nil {
		return c.fail(err)
	}
	c.enter("answering a lookup")
	if err := c.answerLookup(lookups); err != nil {
		return c.fail(err)
	}
	for i := range c.calls() {
		if err := c.answer(calls, i); err != nil {
			return c.fail(err)
		}
	}
	c.enter("looking for calls that nobody made")
	if extra, err := calls.Next(callGap); !errors.Is(err, verbs.ErrTimeout) {
		if err == nil {
			err = fmt.Errorf("there is one from %v, %q", extra.Remote(), trimmed(extra))
		}
		return c.fail(err)
	}
	c.enter("done")
	return errors.Join(calls.Close(), lookups.Close())
}

func (c *callee) answerLookup(lookups verbs.Listener) error {
	request, err := lookups.Next(verbs.Forever)
	if err != nil {
		return err
	}
	phone, err := newDatagramPhone(&c.callEnd)
	if err != nil {
		return err
	}
	if _, err := request.Accept(phone.qp, verbs.ConnParam{}, verbs.Forever); err != nil {
		return err
	}
	return phone.close()
}

func (c *callee) answer(calls verbs.Listener, i int) error {
	c.enter("waiting for call %d", i)
	request, err := calls.Next(verbs.Forever)
	if err != nil {
		return err
	}
	if got, want := trimmed(request), string(callName(i)); got != want {
		return fmt.Errorf("a request for %q, want %q", got, want)
	}
	c.enter("call %d, accepting", i)
	phone, err := newPhone(&c.callEnd)
	if err != nil {
		return err
	}
	conn, err := request.Accept(phone.qp, callParam, verbs.Forever)
	if err != nil {
		return err
	}
	for k := range c.inCall(i) {
		c.enter("call %d, message %d", i, k)
		if err := phone.hear(i, k); err != nil {
			return err
		}
		if err := phone.say(i, k); err != nil {
			return err
		}
	}
	// The other end hangs up when it has heard everything.
	c.enter("call %d, waiting for its end", i)
	return errors.Join(conn.WaitDisconnect(verbs.Forever), phone.close())
}

func callName(i int) []byte { return fmt.Appendf(nil, "call %d", i) }

// trimmed is a request's private data without what the manager fills it up with.
func trimmed(r verbs.ConnRequest) string {
	data := r.Param().PrivateData
	for len(data) > 0 && data[len(data)-1] == 0 {
		data = data[:len(data)-1]
	}
	return string(data)
}
