package agent

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// Joined returns a device as a caller sees it through an agent, without a connection
// between them: each call runs in the goroutine that makes it. All that crosses a
// connection is encoded and decoded, and memory is copied, so that the device behaves
// as it would over one. It is for simulated worlds, in which goroutines are not free
// to wait, and for finding out whether an agent changes anything.
func Joined(dev verbs.Context) (verbs.Context, error) {
	c := newClient(nil)
	s := newSession(joinedHost{dev}, joinedHost{}, joint{to: c.receive, c: c})
	s.run = func(f func()) { f() }
	c.out = joint{to: s.receive, c: c, session: s}
	// Each end hands over what has changed while it has its own memory locked, and takes
	// the other's lock for that: one at a time, then.
	s.memory.turn = c.memory.turn
	return c.Open(dev.Info().Name)
}

// joint hands frames over.
type joint struct {
	to func(kind byte, body []byte) error
	c  *Client
	// session is the other end, for tests.
	session *session
}

func (j joint) send(frame []byte) {
	if err := j.to(frame[frameHeaderLen-1], frame[frameHeaderLen:]); err != nil {
		j.c.fail(err)
	}
}

// joinedHost has one device.
type joinedHost struct{ dev verbs.Context }

func (h joinedHost) Open(string) (verbs.Context, error)          { return h.dev, nil }
func (h joinedHost) SetLink(string, bool) error                  { return ErrCannot }
func (h joinedHost) SetAddress(string, netip.Prefix, bool) error { return ErrCannot }
func (h joinedHost) Restart(string) error                        { return ErrCannot }
func (h joinedHost) hold(string, *session) error                 { return nil }
func (h joinedHost) letGo(string, *session)                      {}
func (h joinedHost) Identity() (Identity, error) {
	return Identity{Devices: []DeviceIdentity{{Info: h.dev.Info()}}}, nil
}
