package iwarpwire

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// frame is a start-up frame on its way through an Edge.
type frame struct {
	octets  []byte // header and private data
	behind  []byte // what came with it
	request bool
}

// The flags of a start-up frame.
const (
	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10
	flagReserved = 0x0f

	flagsAt, revisionAt, lengthAt = 16, 17, 18
)

// longestTaken is the most private data that is waited for.
const longestTaken = 1024

// frames is a start-up frame as it is on the wire, and as the sound side has it.
type frames struct{ wire, sound summary }

// summary is what of a frame matters later.
type summary struct {
	flags    uint8
	enhanced bool
	data     wire.Enhanced
}

func (f *frame) has(flag uint8) bool { return f.octets[flagsAt]&flag != 0 }
func (f *frame) set(flag uint8)      { f.octets[flagsAt] |= flag }
func (f *frame) clear(flag uint8)    { f.octets[flagsAt] &^= flag }
func (f *frame) revision() uint8     { return f.octets[revisionAt] }
func (f *frame) private() []byte     { return f.octets[wire.StartFrameLen:] }
func (f *frame) reply() bool         { return !f.request }

// setPrivate replaces the private data.
func (f *frame) setPrivate(b []byte) {
	f.octets = append(f.octets[:wire.StartFrameLen:wire.StartFrameLen], b...)
	binary.BigEndian.PutUint16(f.octets[lengthAt:], uint16(len(b)))
}

// enhanced returns the enhanced data, if there is any.
func (f *frame) enhanced() (e wire.Enhanced, ok bool) {
	if !f.has(flagEnhanced) || f.revision() < wire.RevisionEnhanced {
		return e, false
	}
	_, err := e.Parse(f.private())
	return e, err == nil
}

// setEnhanced replaces the enhanced data.
func (f *frame) setEnhanced(e wire.Enhanced) { copy(f.private(), e.Append(nil)) }

// enhance puts enhanced data in front of the private data.
func (f *frame) enhance(e wire.Enhanced) {
	f.set(flagEnhanced)
	b := append(e.Append(nil), f.private()...)
	f.setPrivate(b[:min(len(b), wire.MaxPrivateData)])
}

func (f *frame) summary() (s summary) {
	s.flags = f.octets[flagsAt]
	s.data, s.enhanced = f.enhanced()
	return s
}

// keyPrefix is what all keys begin with.
const keyPrefix = "MPA ID "

// takeFrame gathers the peer's start-up frame and hands it on. What does not begin
// like one goes on as it comes: the sound side has its own opinion of that.
func (c *Conn) takeFrame() {
	n := min(len(c.partial), len(keyPrefix))
	if string(c.partial[:n]) != keyPrefix[:n] {
		c.pass()
		return
	}
	if len(c.partial) < wire.StartFrameLen {
		return
	}
	length := int(binary.BigEndian.Uint16(c.partial[lengthAt:]))
	if length > longestTaken {
		c.pass()
		return
	}
	if end := wire.StartFrameLen + length; len(c.partial) >= end {
		f := &frame{octets: slices.Clone(c.partial[:end]), behind: c.partial[end:], request: !c.initiator}
		c.partial = nil
		c.handFrame(f)
	}
}

// endFrame is for a start-up frame that ends early.
func (c *Conn) endFrame() {
	if !c.q.ShortFramesTaken || !c.initiator || len(c.partial) < wire.StartFrameLen {
		return
	}
	binary.BigEndian.PutUint16(c.partial[lengthAt:], uint16(len(c.partial)-wire.StartFrameLen))
	c.takeFrame()
}

// handFrame gives the sound side a frame, and what came behind it.
func (c *Conn) handFrame(f *frame) {
	c.peer.wire = f.summary()
	for _, do := range c.edge.framesIn {
		do(c, f)
	}
	c.peer.sound = f.summary()
	if f.request || f.has(flagReject) {
		c.phase = passing
		c.sound.Input(c.edge.now, slices.Concat(f.octets, f.behind))
		return
	}
	c.operate()
	c.sound.Input(c.edge.now, f.octets)
	c.takeFPDUs(f.behind)
}

// sendFrame sends the start-up frame of the sound side.
func (c *Conn) sendFrame(b []byte) {
	f := &frame{octets: b, request: c.initiator}
	c.own.sound = f.summary()
	accepts := f.reply() && !f.has(flagReject)
	goes := true
	for _, do := range c.edge.framesOut {
		goes = goes && do(c, f)
	}
	c.own.wire = f.summary()
	if goes {
		c.write(f.octets)
		c.write(f.behind)
	}
	if accepts {
		c.operate()
	}
}

// operate is the point from which on there are FPDUs.
func (c *Conn) operate() {
	to := func(receiver, sender *summary) wire.Framing {
		return wire.Framing{Markers: receiver.flags&flagMarkers != 0, CRC: (receiver.flags|sender.flags)&flagCRC != 0}
	}
	c.framing = framing{
		wireIn: to(&c.own.wire, &c.peer.wire), soundIn: to(&c.own.sound, &c.peer.sound),
		wireOut: to(&c.peer.wire, &c.own.wire), soundOut: to(&c.peer.sound, &c.own.sound),
	}
	if c.q.CRCNeedsBoth {
		both := c.own.wire.flags&c.peer.wire.flags&flagCRC != 0
		c.framing.wireIn.CRC, c.framing.wireOut.CRC = both, both
	}
	if c.q.MarkersAlways {
		c.framing.wireOut.Markers = true
	}
	c.reframe = wire.NewFramer(c.framing.soundIn)
	c.phase, c.last = full, true
}
