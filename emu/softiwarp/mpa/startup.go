package mpa

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// siwPrivateData is the most private data that siw takes.
const siwPrivateData = 256

// sendRequest queues the Request of an initiator.
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

// sendFrame queues a start-up frame, with enhanced data if it says so.
func (c *Conn) sendFrame(f *wire.StartFrame, e *wire.Enhanced, private []byte) {
	f.PrivateData = nil
	if f.Enhanced && f.Revision >= wire.RevisionEnhanced {
		f.PrivateData = e.Append(make([]byte, 0, wire.EnhancedLen+len(private)))
	}
	f.PrivateData = append(f.PrivateData, private...)
	b := f.Append(make([]byte, 0, wire.StartFrameLen+len(f.PrivateData)))
	if c.q.LengthWraps {
		b[18] = 0
	}
	f.PrivateData = nil
	c.out.begin(0)
	c.out.borrow(b)
	c.out.end(false)
}

// wantsCRC reports whether the start-up frames of this side ask for CRCs.
func (c *Conn) wantsCRC() bool { return !c.cfg.NoCRC && !c.q.NeverAsksCRC }

// nextFrame gathers the peer's start-up frame, and not an octet more. A frame
// that is wrong is found out as early as it can be, so that nobody waits for the
// rest of it.
func (c *Conn) nextFrame() (e Event, ok bool) {
	for {
		need := wire.StartFrameLen
		if len(c.frame) >= need {
			need += int(binary.BigEndian.Uint16(c.frame[need-2:]))
		}
		take := min(need-len(c.frame), len(c.in))
		c.frame, c.in = append(c.frame, c.in[:take]...), c.in[take:]

		var f wire.StartFrame
		_, err := f.Parse(c.frame)
		if c.hangs(&f) {
			return e, false
		}
		if why := c.examine(&f, err); why != nil {
			fallback := errors.Is(why, ErrNotEnhanced) && c.fallback()
			e = c.fail(wire.TermMPAFrame, CloseNow, why)
			e.Fallback = fallback
			return e, true
		}
		switch {
		case err == nil:
			c.deadline, c.frame = mono.Never, nil
			if c.state == waitRequest {
				return c.takeRequest(&f), true
			}
			return c.takeReply(&f), true
		case len(c.in) == 0:
			return e, false
		}
	}
}

// examine says what is wrong with a frame of which more may have to come, as err
// tells.
func (c *Conn) examine(f *wire.StartFrame, err error) error {
	switch {
	case errors.Is(err, wire.ErrKey):
		return ErrNoMPA
	case len(c.frame) < len(wire.RequestKey):
		return nil
	case f.Reply && c.state == waitRequest:
		return ErrUnasked
	case !f.Reply && c.state == waitReply:
		return ErrTwoInitiators
	case len(c.frame) < wire.StartFrameLen:
		return nil
	case !c.speaks(f.Revision):
		return ErrRevision
	}
	length := binary.BigEndian.Uint16(c.frame[wire.StartFrameLen-2:])
	enhanced := f.Enhanced && f.Revision >= wire.RevisionEnhanced
	switch {
	case length > wire.MaxPrivateData, c.q.PrivateData256 && length > siwPrivateData:
		return ErrLongPrivateData
	case enhanced && length < wire.EnhancedLen:
		return ErrShortEnhanced
	case !f.Reply || f.Reject:
		return nil
	case enhanced && !c.request.Enhanced:
		return ErrEnhanced
	case !enhanced && c.request.Enhanced:
		return ErrNotEnhanced
	}
	return nil
}

func (c *Conn) speaks(revision uint8) bool {
	if revision == wire.RevisionConsortium {
		return c.cfg.Consortium || c.q.TakesRevision0
	}
	return revision <= c.cfg.MaxRevision
}

// hangs imitates a stack whose worker dies of the Reply f.
func (c *Conn) hangs(f *wire.StartFrame) bool {
	if !c.q.BadReplyHangs || !f.Reply || c.state != waitReply || len(c.frame) < wire.StartFrameLen {
		return false
	}
	length := binary.BigEndian.Uint16(c.frame[wire.StartFrameLen-2:])
	if length <= siwPrivateData && !(f.Enhanced && f.Revision >= wire.RevisionEnhanced && length < wire.EnhancedLen) {
		return false
	}
	c.state, c.deadline = hung, mono.Never
	c.out.drop()
	return true
}

// enterFull is the point from which on there are FPDUs. Nothing of a frame of
// this side may have been sent before it that lets the peer send one.
func (c *Conn) enterFull(own, peer *wire.StartFrame) {
	p := &c.params
	p.Out, p.In = wire.FramingTo(peer, own), wire.FramingTo(own, peer)
	if p.Revision == wire.RevisionConsortium && c.cfg.Consortium {
		p.Out = wire.Framing{Markers: true, CRC: true}
		p.In = p.Out
	}
	c.deframer = wire.NewDeframer(p.In)
	c.state = full
	c.SetMSS(c.cfg.MSS)
}
