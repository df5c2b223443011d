package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

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
		attr := verbs.QPAttr{
			Port: s.port(), Access: access, PathMTU: min(mine.ActiveMTU, to.MTU), DestQPN: to.QPNs[i], AH: s.ahAttr(to),
			MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads, MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7,
		}
		if err := modifyToRTS(q, attr,
			verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags,
			verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer,
			verbs.QPAttrSQPSN|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry|verbs.QPAttrMaxQPRdAtomic,
		); err != nil {
			return err
		}
	}
	return nil
}

// modifyToRTS moves a queue pair to INIT, RTR and RTS with these attributes.
func modifyToRTS(q verbs.QP, attr verbs.QPAttr, toInit, toReceive, toSend verbs.QPAttrMask) error {
	for _, step := range []struct {
		state verbs.QPState
		mask  verbs.QPAttrMask
	}{{verbs.QPStateInit, toInit}, {verbs.QPStateRTR, toReceive}, {verbs.QPStateRTS, toSend}} {
		attr.State = step.state
		if err := q.Modify(attr, step.mask|verbs.QPAttrState); err != nil {
			return err
		}
	}
	return nil
}

// ahAttr returns the path to the other side.
func (s *Side) ahAttr(to connInfo) verbs.AHAttr {
	return verbs.AHAttr{Port: s.port(), GRH: verbs.GRH{DGID: to.GID, SGIDIndex: s.GIDIndex, HopLimit: 64}}
}

// datagramKey is the Q_Key of datagrams.
const datagramKey = 0x0fab

// connectUD moves UD queue pairs to RTS, and stores their destinations.
func (c *conn) connectUD(to connInfo) error {
	for _, q := range c.qps {
		attr := verbs.QPAttr{Port: c.side.port(), QKey: datagramKey}
		if err := modifyToRTS(q, attr, verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey, 0, verbs.QPAttrSQPSN); err != nil {
			return err
		}
	}
	ah, err := c.pd.CreateAH(c.side.ahAttr(to))
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
func (c *conn) listen() (netip.AddrPort, error) {
	cm, err := c.side.Device.CM()
	if err != nil {
		return netip.AddrPort{}, err
	}
	c.listener, err = cm.Listen(netip.AddrPortFrom(c.side.Addr, 0), verbs.PortSpaceTCP, max(1, len(c.qps)))
	if err != nil {
		return netip.AddrPort{}, err
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
	cm, err := c.side.Device.CM()
	if err != nil {
		return err
	}
	for i, q := range c.qps {
		id, err := cm.Connect(q, to, connParam(binary.BigEndian.AppendUint32(nil, uint32(i))), waitTimeout)
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
