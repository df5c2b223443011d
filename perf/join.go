package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// join makes the queue pairs ready to send to those of the other side.
func (c *conn) join(theirs address) error {
	switch c.side.Service {
	case Streamed:
		if c.side.Role == Client {
			return c.call(theirs.Listen)
		}
		return c.answer()
	case Datagrams:
		return c.datagrams(theirs)
	default:
		return c.pairs(theirs)
	}
}

// pairs joins each queue pair with one of the other side's by its attributes.
func (c *conn) pairs(to address) error {
	s := c.side
	mine, err := s.Device.QueryPort(s.port())
	if err != nil {
		return err
	}
	for i, q := range c.qps {
		attr := verbs.QPAttr{
			Port: s.port(), Access: access, PathMTU: min(mine.ActiveMTU, to.MTU), DestQPN: to.QPNs[i], AH: s.route(to),
			MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads, MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7,
		}
		if err := climb(q, attr,
			verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags,
			verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer,
			verbs.QPAttrSQPSN|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry|verbs.QPAttrMaxQPRdAtomic,
		); err != nil {
			return err
		}
	}
	return nil
}

// climb takes a queue pair to the state in which it sends and receives, with
// the attributes that each step needs.
func climb(q verbs.QP, attr verbs.QPAttr, toInit, toReceive, toSend verbs.QPAttrMask) error {
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

// route is the way to the other side.
func (s *Side) route(to address) verbs.AHAttr {
	return verbs.AHAttr{Port: s.port(), GRH: verbs.GRH{DGID: to.GID, SGIDIndex: s.GIDIndex, HopLimit: 64}}
}

// datagramKey is what datagrams of these programs carry.
const datagramKey = 0x0fab

// datagrams makes the queue pairs ready, each to send to one of the other
// side's.
func (c *conn) datagrams(to address) error {
	for _, q := range c.qps {
		attr := verbs.QPAttr{Port: c.side.port(), QKey: datagramKey}
		if err := climb(q, attr, verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey, 0, verbs.QPAttrSQPSN); err != nil {
			return err
		}
	}
	ah, err := c.pd.CreateAH(c.side.route(to))
	if err != nil {
		return err
	}
	c.later(ah.Close)
	for _, n := range to.QPNs {
		c.peers = append(c.peers, verbs.UD{AH: ah, QPN: n, QKey: datagramKey})
	}
	return nil
}

// listen opens the server's side to callers.
func (c *conn) listen() (netip.AddrPort, error) {
	cm, err := c.side.Device.CM()
	if err != nil {
		return netip.AddrPort{}, err
	}
	c.listener, err = cm.Listen(netip.AddrPortFrom(c.side.Addr, 0), verbs.PortSpaceTCP, max(1, len(c.qps)))
	if err != nil {
		return netip.AddrPort{}, err
	}
	c.later(c.listener.Close)
	return c.listener.Addr(), nil
}

func connParam(private []byte) verbs.ConnParam {
	return verbs.ConnParam{
		PrivateData: private, ResponderResources: maxReads, InitiatorDepth: maxReads, RetryCount: 7, RNRRetryCount: 7,
	}
}

// call connects each queue pair, and says which one it is.
func (c *conn) call(to netip.AddrPort) error {
	cm, err := c.side.Device.CM()
	if err != nil {
		return err
	}
	for i, q := range c.qps {
		made, err := cm.Connect(q, to, connParam(binary.BigEndian.AppendUint32(nil, uint32(i))), patience)
		if err != nil {
			return err
		}
		c.later(made.Disconnect)
	}
	return nil
}

// answer accepts as many calls as there are queue pairs.
func (c *conn) answer() error {
	for range c.qps {
		r, err := c.listener.GetRequest(patience)
		if err != nil {
			return err
		}
		who := r.Param().PrivateData
		if len(who) < 4 {
			return errors.Join(fmt.Errorf("a call from %v says %q, not which queue pair it is for", r.Remote(), who), r.Reject(nil))
		}
		i := int(binary.BigEndian.Uint32(who))
		if i >= len(c.qps) {
			return errors.Join(fmt.Errorf("a call for queue pair %d of %d", i, len(c.qps)), r.Reject(nil))
		}
		made, err := r.Accept(c.qps[i], connParam(nil), patience)
		if err != nil {
			return err
		}
		c.later(made.Disconnect)
	}
	return nil
}

// maxReads is how many READs a queue pair may have under way; every device
// that has them has so many.
const maxReads = 16

// timeout is the transport timer: 268 ms, and 2 s with all retries. It is long,
// because on a machine with much else to do a process may not run for half a
// second. That must show as noise and not as a broken connection.
const timeout = 16
