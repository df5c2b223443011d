package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// connectQPs connects the queue pairs with those of the other side.
func (c *conn) connectQPs(theirs connInfo) error {
	switch c.side.Service {
	case ServiceIWARP:
		if c.side.Role == Client {
			return c.connectCM(theirs.Listen)
		}
		return c.acceptCM()
	case ServiceUD:
		return c.connectUD(theirs)
	default:
		return c.connectRC(theirs)
	}
}

// connectRC connects RC queue pairs by their attributes.
func (c *conn) connectRC(to connInfo) error {
	s := c.side
	mine, err := s.Device.QueryPort(s.port())
	if err != nil {
		return err
	}
	for i, q := range c.qps {
		if err := traffic.Connect(q, verbs.QPAttr{
			Port: s.port(), Access: access, PathMTU: min(mine.ActiveMTU, to.MTU), DestQPN: to.QPNs[i],
			AH: traffic.Address(s.port(), s.GIDIndex, to.GID), MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads,
			MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7,
		}); err != nil {
			return err
		}
	}
	return nil
}

// datagramKey is the Q_Key of datagrams.
const datagramKey = 0x0fab

// connectUD moves UD queue pairs to RTS, and stores their destinations.
func (c *conn) connectUD(to connInfo) error {
	for _, q := range c.qps {
		if err := traffic.Connect(q, verbs.QPAttr{Port: c.side.port(), QKey: datagramKey}); err != nil {
			return err
		}
	}
	ah, err := c.pd.CreateAH(traffic.Address(c.side.port(), c.side.GIDIndex, to.GID))
	if err != nil {
		return err
	}
	c.deferClose(ah.Close)
	for _, n := range to.QPNs {
		c.peers = append(c.peers, verbs.UD{AH: ah, QPN: n, QKey: datagramKey})
	}
	return nil
}

// listen starts the server's CM listener.
func (c *conn) listen() (addr netip.AddrPort, err error) {
	if c.listener, err = traffic.Listen(c.side.Device, c.side.Addr, verbs.PortSpaceTCP, max(1, len(c.qps))); err != nil {
		return addr, err
	}
	c.deferClose(c.listener.Close)
	return c.listener.Addr(), nil
}

func connParam(private []byte) verbs.ConnParam {
	return verbs.ConnParam{
		PrivateData: private, ResponderResources: maxReads, InitiatorDepth: maxReads, RetryCount: 7, RNRRetryCount: 7,
	}
}

// connectCM connects each queue pair. The private data has its index.
func (c *conn) connectCM(to netip.AddrPort) error {
	for i, q := range c.qps {
		id, err := traffic.Dial(c.side.Device, q, to, connParam(binary.BigEndian.AppendUint32(nil, uint32(i))), waitTimeout)
		if err != nil {
			return err
		}
		c.deferClose(id.Disconnect)
	}
	return nil
}

// acceptCM accepts a connection for each queue pair.
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

// maxReads is the number of outstanding READs of a queue pair, which all devices
// support.
const maxReads = 16

// timeout is the transport timer: 268 ms, and 2 s with all retries. On a busy
// machine a process may not run for half a second, which must not break
// connections.
const timeout = 16
