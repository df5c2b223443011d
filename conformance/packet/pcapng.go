package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// Block types and options of pcapng.
const (
	blockInterface = 1
	blockSimple    = 3
	blockEnhanced  = 6

	optEnd       = 0
	optComment   = 1
	optFlags     = 2 // of a packet: 1 in, 2 out
	optTSResol   = 9 // of an interface
	optTSOffset  = 14
	nanoseconds  = 9 // as the resolution: 10^-9
	microseconds = 6
)

// ngReader is the state of a section.
type ngReader struct {
	r     io.Reader
	order binary.ByteOrder
	links []ngLink
}

// ngLink is an interface of a section.
type ngLink struct {
	link   LinkType
	resol  byte // of timestamps: a second / 10^resol, or / 2^(resol-0x80) if the top bit is set
	offset time.Duration
}

// readNG reads the packets of a pcapng file after the first four bytes, its first block type.
func readNG(r io.Reader) (all []Captured, err error) {
	g := ngReader{r: r}
	kind := uint32(magicNG)
	for {
		c, err := g.readBlock(kind)
		if err != nil {
			return all, fmt.Errorf("%w: after packet %d: %w", ErrFormat, len(all), err)
		}
		if c != nil {
			all = append(all, *c)
		}
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return all, nil
			}
			return all, fmt.Errorf("%w: after packet %d: %w", ErrFormat, len(all), err)
		}
		kind = g.order.Uint32(b[:])
	}
}

// readBlock reads a block after its type. It returns a packet, or nil for other blocks. A
// section header sets the byte order, and forgets the interfaces.
func (g *ngReader) readBlock(kind uint32) (*Captured, error) {
	var head [8]byte
	if kind == magicNG {
		if _, err := io.ReadFull(g.r, head[:]); err != nil {
			return nil, err
		}
		switch {
		case binary.LittleEndian.Uint32(head[4:]) == magicOrder:
			g.order = binary.LittleEndian
		case binary.BigEndian.Uint32(head[4:]) == magicOrder:
			g.order = binary.BigEndian
		default:
			return nil, fmt.Errorf("unknown byte-order magic %x", head[4:])
		}
		g.links = nil
		_, err := g.readBody(g.order.Uint32(head[:]), 16)
		return nil, err
	}
	if _, err := io.ReadFull(g.r, head[:4]); err != nil {
		return nil, err
	}
	b, err := g.readBody(g.order.Uint32(head[:]), 12)
	if err != nil {
		return nil, err
	}
	switch kind {
	case blockInterface:
		return nil, g.addLink(b)
	case blockEnhanced:
		return g.parseEnhanced(b)
	case blockSimple:
		return g.parseSimple(b)
	}
	return nil, nil // ignore other blocks
}

// readBody reads and returns the body of a block of a length, and checks the repeated length at
// its end. framing is the number of bytes of the block that are not its body.
func (g *ngReader) readBody(length, framing uint32) ([]byte, error) {
	if length < framing || length%4 != 0 || length > maxPacket+1024 {
		return nil, fmt.Errorf("invalid block length %d", length)
	}
	b := make([]byte, length-framing+4)
	if _, err := io.ReadFull(g.r, b); err != nil {
		return nil, err
	}
	end := len(b) - 4
	if repeated := g.order.Uint32(b[end:]); repeated != length {
		return nil, fmt.Errorf("block length %d is repeated as %d at the end", length, repeated)
	}
	return b[:end], nil
}

// addLink adds the interface of an interface description block.
func (g *ngReader) addLink(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("interface: %w", ErrShort)
	}
	l := ngLink{link: LinkType(g.order.Uint16(b)), resol: microseconds}
	g.eachOption(b[8:], func(code uint16, v []byte) {
		switch {
		case code == optTSResol && len(v) == 1:
			l.resol = v[0]
		case code == optTSOffset && len(v) == 8:
			l.offset = time.Duration(g.order.Uint64(v)) * time.Second
		}
	})
	g.links = append(g.links, l)
	return nil
}

// parseEnhanced returns the packet of an enhanced packet block.
func (g *ngReader) parseEnhanced(b []byte) (*Captured, error) {
	if len(b) < 20 {
		return nil, fmt.Errorf("packet: %w", ErrShort)
	}
	i, n := g.order.Uint32(b), g.order.Uint32(b[12:])
	if uint64(i) >= uint64(len(g.links)) {
		return nil, fmt.Errorf("packet of unknown interface %d", i)
	}
	if uint64(n) > uint64(len(b)-20) {
		return nil, fmt.Errorf("packet of %d bytes in a block of %d", n, len(b))
	}
	l := g.links[i]
	ts := uint64(g.order.Uint32(b[4:]))<<32 | uint64(g.order.Uint32(b[8:]))
	c := &Captured{At: l.time(ts), Link: l.link, Data: b[20 : 20+n : 20+n], Size: int(g.order.Uint32(b[16:]))}
	rest := b[20+n:]
	if pad := -int(n) & 3; pad <= len(rest) {
		g.eachOption(rest[pad:], func(code uint16, v []byte) {
			switch {
			case code == optComment:
				c.Comment = string(v)
			case code == optFlags && len(v) == 4:
				c.Out = g.order.Uint32(v)&3 == 2
			}
		})
	}
	return c, nil
}

// parseSimple returns the packet of a simple packet block, which has no timestamp.
func (g *ngReader) parseSimple(b []byte) (*Captured, error) {
	if len(b) < 4 || len(g.links) == 0 {
		return nil, fmt.Errorf("simple packet: %w, or without an interface", ErrShort)
	}
	size := g.order.Uint32(b)
	data := b[4:]
	if uint64(size) < uint64(len(data)) {
		data = data[:size]
	}
	return &Captured{Link: g.links[0].link, Data: data, Size: int(size)}, nil
}

// time converts a timestamp of the interface to the time since the epoch.
func (l ngLink) time(ts uint64) time.Duration {
	perSecond := uint64(1) // units of the timestamp
	if l.resol&0x80 != 0 {
		perSecond <<= min(l.resol&0x7f, 62)
	} else {
		for range min(l.resol, 18) {
			perSecond *= 10
		}
	}
	hi, lo := bits.Mul64(ts%perSecond, uint64(time.Second))
	nanos, _ := bits.Div64(hi, lo, perSecond)
	return l.offset + time.Duration(ts/perSecond)*time.Second + time.Duration(nanos)
}

// eachOption calls each for every option in b.
func (g *ngReader) eachOption(b []byte, each func(code uint16, v []byte)) {
	for len(b) >= 4 {
		code, n := g.order.Uint16(b), int(g.order.Uint16(b[2:]))
		if code == optEnd || 4+n > len(b) {
			return
		}
		each(code, b[4:4+n])
		b = b[min(len(b), 4+n+(-n&3)):]
	}
}

// CaptureWriter writes a pcapng file with nanosecond timestamps.
type CaptureWriter struct {
	w     io.Writer
	links map[LinkType]uint32
}

// NewCaptureWriter writes the start of a pcapng file, with a comment unless it is empty.
func NewCaptureWriter(w io.Writer, comment string) (*CaptureWriter, error) {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, magicOrder)
	b = le.AppendUint32(b, 1)                  // version 1.0
	b = le.AppendUint64(b, 0xffffffffffffffff) // section of unknown length
	if comment != "" {
		b = appendOption(appendOption(b, optComment, []byte(comment)), optEnd, nil)
	}
	cw := &CaptureWriter{w, map[LinkType]uint32{}}
	return cw, cw.writeBlock(magicNG, b)
}

// Write adds a packet. Each link type gets its own interface.
func (cw *CaptureWriter) Write(c Captured) error {
	le := binary.LittleEndian
	id, ok := cw.links[c.Link]
	if !ok {
		b := le.AppendUint16(nil, uint16(c.Link))
		b = append(b, 0, 0, 0, 0, 0, 0) // reserved, and no limit of the packet length
		b = appendOption(b, optTSResol, []byte{nanoseconds})
		if err := cw.writeBlock(blockInterface, appendOption(b, optEnd, nil)); err != nil {
			return err
		}
		id = uint32(len(cw.links))
		cw.links[c.Link] = id
	}
	b := le.AppendUint32(nil, id)
	b = le.AppendUint32(b, uint32(uint64(c.At)>>32))
	b = le.AppendUint32(b, uint32(c.At))
	b = le.AppendUint32(b, uint32(len(c.Data)))
	b = le.AppendUint32(b, uint32(max(c.Size, len(c.Data))))
	b = append(b, c.Data...)
	b = append(b, make([]byte, -len(c.Data)&3)...)
	direction := []byte{1, 0, 0, 0}
	if c.Out {
		direction[0] = 2
	}
	if c.Comment != "" {
		b = appendOption(b, optComment, []byte(c.Comment))
	}
	b = appendOption(b, optFlags, direction)
	return cw.writeBlock(blockEnhanced, appendOption(b, optEnd, nil))
}

// writeBlock writes a block with its length before and after the body.
func (cw *CaptureWriter) writeBlock(kind uint32, body []byte) error {
	le := binary.LittleEndian
	size := uint32(len(body) + 12)
	b := le.AppendUint32(nil, kind)
	b = le.AppendUint32(b, size)
	b = append(b, body...)
	_, err := cw.w.Write(le.AppendUint32(b, size))
	return err
}

// appendOption appends an option, and truncates one that exceeds the maximum length.
func appendOption(b []byte, code uint16, v []byte) []byte {
	v = v[:min(len(v), 0xfff0)]
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	return append(b, make([]byte, -len(v)&3)...)
}
