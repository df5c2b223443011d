package mpa

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// sendRequest queues the initiator's Request.
func (c *Conn) sendRequest(private []byte) {
	c.request = wire.StartFrame{
		Markers:  c.cfg.Markers,
		CRC:      c.wantsCRC(),
		Revision: wire.RevisionRFC5044,
	}
	e := enhancedData(c.cfg.PeerToPeer, c.cfg.RTR, c.cfg.IRD, c.cfg.ORD)
	if c.cfg.enhanced() {
		c.request.Enhanced, c.request.Revision = true, wire.RevisionEnhanced
	}
	c.sendFrame(&c.request, &e, private)
	c.count.RequestsSent++
}

// sendFrame queues a Request or Reply with the application's private data, after the enhanced data
// if its flag is set.
func (c *Conn) sendFrame(f *wire.StartFrame, e *wire.Enhanced, private []byte) {
	if f.Enhanced && f.Revision >= wire.RevisionEnhanced {
		f.PrivateData = e.Append(make([]byte, 0, wire.EnhancedLen+len(private)))
	}
	f.PrivateData = append(f.PrivateData, private...)
	b := f.Append(make([]byte, 0, wire.StartFrameLen+len(f.PrivateData)))
	if c.policy.LowPDLength {
		b[18] = 0 // the high octet of PD_Length, as siw sends it
	}
	f.PrivateData = nil // b has a copy
	c.out.borrow(b)
	c.out.end(!isFPDU)
}

// wantsCRC reports whether this side requests CRCs.
func (c *Conn) wantsCRC() bool { return !c.cfg.NoCRC && !c.policy.NeverAskCRC }

// nextFrame parses the peer's Request or Reply from the received octets, and leaves those after it.
// The event is that of the frame, or an error as soon as the octets received so far are invalid. ok
// is false while the frame is incomplete, and if stopOnBadReply ignores the frame.
func (c *Conn) nextFrame() (e Event, ok bool) {
	for {
		need := wire.StartFrameLen
		if len(c.startFrame) >= need {
			need += int(c.pdLength())
		}
		take := min(need-len(c.startFrame), len(c.in))
		c.startFrame, c.in = append(c.startFrame, c.in[:take]...), c.in[take:]

		var f wire.StartFrame
		_, err := f.Parse(c.startFrame)
		if c.stopOnBadReply(&f) {
			return e, false
		}
		if why := c.checkFrame(&f, err); why != nil {
			fallback := errors.Is(why, ErrNotEnhanced) && c.adviseFallback() // reads c.state
			e = c.fail(wire.TermMPAFrame, CloseNow, why)
			e.Fallback = fallback
			return e, true
		}
		switch {
		case err == nil:
			c.deadline, c.startFrame = mono.Never, nil
			if c.state == waitRequest {
				return c.receiveRequest(&f), true
			}
			return c.receiveReply(&f), true
		case len(c.in) == 0:
			return e, false
		}
	}
}

// checkFrame returns an error if the octets received so far of a frame are invalid; err is the
// result of parsing them. Of an incomplete frame it checks only the fields received. The policy
// ShortPrivateData lowers the limit of private data, as in some devices.
func (c *Conn) checkFrame(f *wire.StartFrame, err error) error {
	switch {
	case errors.Is(err, wire.ErrKey):
		return ErrNoMPA
	case len(c.startFrame) < len(wire.RequestKey):
		return nil
	case f.Reply && c.state == waitRequest:
		return ErrUnasked
	case !f.Reply && c.state == waitReply:
		return ErrTwoInitiators
	case len(c.startFrame) < wire.StartFrameLen:
		return nil
	case !c.supportsRevision(f.Revision):
		return ErrRevision
	}
	length := c.pdLength()
	enhanced := f.Enhanced && f.Revision >= wire.RevisionEnhanced
	switch {
	case length > wire.MaxPrivateData, c.policy.ShortPrivateData && length > shortPrivateData:
		return ErrLongPrivateData
	case enhanced && length < wire.EnhancedLen:
		return ErrShortEnhanced
	case !f.Reply || f.Reject: // only a Reply that accepts must fit the Request
		return nil
	case enhanced && !c.request.Enhanced:
		return ErrEnhanced
	case !enhanced && c.request.Enhanced:
		return ErrNotEnhanced
	}
	return nil
}

// pdLength returns PD_Length, the length of the private data. It is the last field of the fixed
// part of a start-up frame, of which the first wire.StartFrameLen octets must have been received.
func (c *Conn) pdLength() uint16 {
	return binary.BigEndian.Uint16(c.startFrame[wire.StartFrameLen-2:])
}

// supportsRevision reports whether frames of an MPA revision are accepted. Revision 0, that of the
// RDMA Consortium before RFC 5044, is accepted by configuration or by the policy AcceptRevision0.
func (c *Conn) supportsRevision(revision uint8) bool {
	if revision == wire.RevisionConsortium {
		return c.cfg.Consortium || c.policy.AcceptRevision0
	}
	return revision <= c.cfg.MaxRevision
}

// stopOnBadReply implements the policy StopOnBadReply: it stops the connection if f is a Reply with
// more than shortPrivateData octets of private data, the limit of the imitated device, or fewer
// than the enhanced data has. It reports whether it did.
func (c *Conn) stopOnBadReply(f *wire.StartFrame) bool {
	if !c.policy.StopOnBadReply || !f.Reply || c.state != waitReply || len(c.startFrame) < wire.StartFrameLen {
		return false
	}
	length := c.pdLength()
	if length <= shortPrivateData && !(f.Enhanced && f.Revision >= wire.RevisionEnhanced && length < wire.EnhancedLen) {
		return false
	}
	c.state, c.deadline = stopped, mono.Never
	c.out.drop()
	return true
}

// enterFullOperation starts the exchange of FPDUs, with the framing that both start-up frames
// request; revision 0, of the RDMA Consortium, always has markers and CRCs. A responder calls it
// before it queues its Reply, after which the peer may send.
func (c *Conn) enterFullOperation(own, peer *wire.StartFrame) {
	p := &c.params
	p.Out, p.In = wire.FramingTo(peer, own), wire.FramingTo(own, peer)
	if p.Revision == wire.RevisionConsortium && c.cfg.Consortium {
		p.Out = wire.Framing{Markers: true, CRC: true}
		p.In = p.Out
	}
	c.deframer = wire.NewDeframer(p.In)
	c.state = fullOperation
	c.SetMSS(c.cfg.MSS)
}
