package agent

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// Loopback returns a device as seen through an agent, without a connection: each call runs in
// the calling goroutine. Messages are encoded and decoded, and memory is copied, as over a
// connection. It is for the simulator, where goroutines may not block, and for testing the
// effect of an agent.
func Loopback(dev verbs.Context) (verbs.Context, error) {
	c := newClient(nil)
	s := newSession(loopbackHost{dev}, loopbackHost{}, loopbackSender{to: c.receive, c: c})
	s.run = func(f func()) { f() }
	c.out = loopbackSender{to: s.receive, c: c, session: s}
	// Each end sends changes with its own memory locked, and takes the other's lock. One
	// common lock avoids a deadlock.
	s.memory.sendLock = c.memory.sendLock
	return c.Open(dev.Info().Name)
}

// loopbackSender passes frames to the other end.
type loopbackSender struct {
	to func(kind byte, body []byte) error
	c  *Client
	// session is the agent's end, for tests.
	session *session
}

func (j loopbackSender) send(frame []byte) {
	if err := j.to(frame[frameHeaderLen-1], frame[frameHeaderLen:]); err != nil {
		j.c.fail(err)
	}
}

// loopbackHost has one device.
type loopbackHost struct{ dev verbs.Context }

func (h loopbackHost) Open(string) (verbs.Context, error)          { return h.dev, nil }
func (h loopbackHost) SetLink(string, bool) error                  { return ErrHostCannot }
func (h loopbackHost) SetAddress(string, netip.Prefix, bool) error { return ErrHostCannot }
func (h loopbackHost) Restart(string) error                        { return ErrHostCannot }
func (h loopbackHost) hold(string, *session) error                 { return nil }
func (h loopbackHost) release(string, *session)                    {}
func (h loopbackHost) Identity() (Identity, error) {
	return Identity{Devices: []DeviceIdentity{{Info: h.dev.Info()}}}, nil
}
