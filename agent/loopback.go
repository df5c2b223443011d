package agent

import (
	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/verbs"
)

// Loopback returns a device as seen through an agent, without a connection: each call runs in the
// calling goroutine. Messages are encoded and decoded, and memory is copied, as over a connection.
// It is for the simulator, where goroutines may not block, and for testing the effect of an agent.
func Loopback(dev verbs.Context) (verbs.Context, error) {
	c, _ := loopback(loopbackHost{dev: dev})
	return c.Open(dev.Info().Name)
}

// loopback returns a client and its session, which pass frames to each other by function calls.
func loopback(h Host) (*Client, *session) {
	c := newClient(nil)
	passTo := func(end func(control.Frame) error) func(control.Frame) {
		return func(f control.Frame) {
			if err := end(f); err != nil {
				c.fail(err)
			}
		}
	}
	s := newSession(h, loopbackHost{}, passTo(c.receive)) // the only client: it need not reserve devices
	s.run = func(f func()) { f() }                        // calls run in the calling goroutine
	c.out = passTo(s.receive)
	// Each end sends memory changes with its own memory locked, and the other end locks its memory
	// to apply them. The common sendLock keeps both from sending at once, which would deadlock.
	s.memory.sendLock = c.memory.sendLock
	return c, s
}

// loopbackHost has one device.
type loopbackHost struct {
	FixedHost
	dev verbs.Context
}

// The methods of loopbackHost implement Host and holder for one device and one session.
func (h loopbackHost) Open(string) (verbs.Context, error) { return h.dev, nil }
func (h loopbackHost) hold(string, *session) error        { return nil }
func (h loopbackHost) release(string, *session)           {}
func (h loopbackHost) Identity() (Identity, error) {
	return Identity{Devices: []DeviceIdentity{{Info: h.dev.Info()}}}, nil
}
