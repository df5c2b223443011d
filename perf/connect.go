package perf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// connectQPs connects the queue pairs with those of the other side: by the CM over iWARP,
// else with the addresses in remote.
func (c *conn) connectQPs(cfg *connConfig, remote connInfo) error {
	switch {
	case c.side.Service == ServiceIWARP && c.side.Role == Client:
		return c.connectCM(remote.Listen)
	case c.side.Service == ServiceIWARP:
		return c.acceptCM()
	case c.side.Service == ServiceUD && c.side.Device.Info().Transport == verbs.TransportIB && cfg.message > remote.MTU.Bytes():
		return fmt.Errorf("messages of %d bytes: a datagram has at most %d, the path MTU: give smaller sizes", cfg.message, remote.MTU.Bytes())
	case c.side.Service.isDatagram():
		return c.connectUD(remote)
	}
	local, err := c.side.Device.QueryPort(c.side.port())
	if err != nil {
		return err
	}
	mtu := min(local.ActiveMTU, remote.MTU)
	for i := range c.ends {
		attr := verbs.QPAttr{
			Port: c.side.port(), Access: cfg.access(c.side.Service), PathMTU: mtu,
			AH: traffic.Address(c.side.port(), c.side.GIDIndex, remote.GID), MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads,
			MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7,
		}
		if err := c.ends[i].ToInit(attr); err != nil {
			return err
		}
		if err := c.ends[i].ToRTS(remote.QPs[i], attr); err != nil {
			return err
		}
	}
	return nil
}

// datagramKey is the Q_Key of datagrams.
const datagramKey = 0x0fab

// connectUD moves queue pairs for datagrams to RTS, and stores their destinations.
func (c *conn) connectUD(remote connInfo) error {
	for _, q := range c.qps {
		if err := traffic.Connect(q, verbs.QPAttr{Port: c.side.port(), QKey: datagramKey}); err != nil {
			return err
		}
	}
	ah, err := c.PD.CreateAH(traffic.Address(c.side.port(), c.side.GIDIndex, remote.GID))
	if err != nil {
		return err
	}
	c.deferClose(ah.Close)
	for _, n := range remote.QPs {
		c.peers = append(c.peers, verbs.UD{AH: ah, QPN: n.QPN, QKey: datagramKey})
	}
	return nil
}

// connParam returns the parameters of a CM request or reply with this private data.
func connParam(private []byte) verbs.ConnParam {
	return verbs.ConnParam{
		PrivateData: private, ResponderResources: maxReads, InitiatorDepth: maxReads, RetryCount: 7, RNRRetryCount: 7,
	}
}

// connectCM connects each queue pair to the server's listener. The private data of the
// request has the index of the server's queue pair to accept it with.
func (c *conn) connectCM(to netip.AddrPort) error {
	for i, q := range c.qps {
		index := binary.BigEndian.AppendUint32(nil, uint32(i))
		id, err := traffic.Dial(c.side.Device, q, to, connParam(index), waitTimeout)
		if err != nil {
			return err
		}
		c.deferClose(id.Disconnect)
	}
	return nil
}

// acceptCM accepts a connection for each queue pair. The request's private data has the
// index of the queue pair, see connectCM.
func (c *conn) acceptCM() error {
	for range c.qps {
		r, err := c.listener.GetRequest(waitTimeout)
		if err != nil {
			return err
		}
		data := r.Param().PrivateData
		if len(data) < 4 {
			return errors.Join(fmt.Errorf("connection request from %v: private data %q has no queue pair index", r.Remote(), data), r.Reject(nil))
		}
		i := int(binary.BigEndian.Uint32(data))
		if i >= len(c.qps) {
			return errors.Join(fmt.Errorf("connection request for queue pair %d of %d", i, len(c.qps)), r.Reject(nil))
		}
		id, err := r.Accept(c.qps[i], connParam(nil), waitTimeout)
		if err != nil {
			return err
		}
		c.deferClose(id.Disconnect)
	}
	return nil
}

// maxReads is the number of outstanding READs of a queue pair, which all devices support.
const maxReads = 16

// timeout is the transport timer, as in an ibv_qp_attr: 4.3 s, and 34 s with all retries, which
// is more than waitTimeout. On a busy machine a process may not run for seconds, which
// must not break connections.
const timeout = 20

// Role is the side of a program.
type Role uint8

// The client starts, and returns the result.
const (
	Client Role = iota
	Server
)

func (r Role) String() string { return [...]string{"client", "server"}[r] }

// Exchange is the out-of-band channel between the sides.
type Exchange interface {
	// Swap sends mine to the other side and returns its data. It returns when both
	// sides have called it, and is also a barrier.
	Swap(ctx context.Context, mine []byte) ([]byte, error)
}

// Side is one side of a measurement.
type Side struct {
	Role     Role
	Device   verbs.Context
	Service  Service
	Exchange Exchange
	// Addr is the address of the device; needed by the server of ServiceIWARP.
	Addr netip.Addr
	// Port and GIDIndex select the GID; port 0 means 1.
	Port     uint8
	GIDIndex uint8
	// Clock is the time since any start; nil means that of the machine. A simulated device has
	// virtual time.
	Clock func() time.Duration
	// Go runs a function concurrently; nil means in a goroutine. A simulation has its own way.
	Go func(func())
}

// start runs f concurrently.
func (s *Side) start(f func()) {
	if s.Go != nil {
		s.Go(f)
		return
	}
	go f()
}

var started = time.Now()

// now returns the time.
func (s *Side) now() time.Duration {
	if s.Clock != nil {
		return s.Clock()
	}
	return time.Since(started)
}

// Limits of all waits of a program, in real and in virtual time.
const waitTimeout, simulatedTimeout = 30 * time.Second, time.Second

// swap sends mine to the other side as JSON and returns the value that the other side
// passes to its call of swap. It blocks until both sides have called it.
func swap[T any](ctx context.Context, s *Side, mine T) (theirs T, err error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return theirs, err
	}
	if b, err = s.Exchange.Swap(ctx, b); err != nil {
		return theirs, fmt.Errorf("%v: exchange with the other side: %w", s.Role, err)
	}
	if err := json.Unmarshal(b, &theirs); err != nil {
		return theirs, fmt.Errorf("%v: cannot decode %q from the other side: %w", s.Role, b, err)
	}
	return theirs, nil
}

// barrier waits until the other side has called it, too.
func (s *Side) barrier(ctx context.Context) error {
	_, err := swap(ctx, s, struct{}{})
	return err
}
